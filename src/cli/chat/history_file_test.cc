#include "cli/chat/history_file.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

class HistoryFileTest : public testing::Test {
 protected:
  const TestFolder folder_;
  const fs::path path_ = folder_ / "state" / "chat_history";
  const HistoryFile file_{path_};
};

TEST_F(HistoryFileTest, keeps_multi_line_messages_in_order) {
  EXPECT_TRUE(file_.read().empty());
  for (const char* message : {"one", "two\nlines \"quoted\" \\", "größe 大小", "größe 大小"}) {
    ASSERT_TRUE(file_.add(message).ok());
  }
  EXPECT_EQ(file_.read(), (std::vector<std::string>{"one", "two\nlines \"quoted\" \\", "größe 大小"}))
      << "consecutive duplicates are stored once";
}

TEST_F(HistoryFileTest, is_readable_by_its_owner_only) {
  ASSERT_TRUE(file_.add("a secret").ok());
  EXPECT_EQ(fs::status(path_).permissions() & fs::perms::all, fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(HistoryFileTest, drops_oldest_and_oversized_messages) {
  ASSERT_TRUE(file_.add("first").ok());
  std::ofstream(path_, std::ios::app) << [] {
    std::string lines;
    for (size_t i = 0; i < HistoryFile::kMaxMessages; ++i) lines += fmt::format("\"{}\"\n", i);
    return lines;
  }();
  ASSERT_TRUE(file_.add("last").ok());
  EXPECT_EQ(file_.read().size(), HistoryFile::kMaxMessages);
  EXPECT_EQ(file_.read().front(), "1");
  EXPECT_EQ(file_.read().back(), "last");
  ASSERT_TRUE(file_.add(std::string(HistoryFile::kMaxMessageBytes + 1, 'x')).ok());
  EXPECT_EQ(file_.read().back(), "last");
}

TEST_F(HistoryFileTest, unreadable_file_is_not_replaced) {
  fs::create_directories(path_.parent_path());
  fs::create_symlink(path_, path_);  // a dangling link
  EXPECT_FALSE(file_.add("x").ok());
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(HistoryFileTest, size_is_limited) {
  const std::string page(HistoryFile::kMaxMessageBytes - 10, 'x');
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(file_.add(page + std::to_string(i)).ok());
  EXPECT_LE(fs::file_size(path_), HistoryFile::kMaxBytes);
  EXPECT_EQ(file_.read().back(), page + "19");
}

TEST_F(HistoryFileTest, invalid_lines_are_skipped) {
  put(path_, "nonsense\n\"kept\"\n{}\n\n\"cut off");
  EXPECT_EQ(file_.read(), std::vector<std::string>{"kept"});
  fs::remove(path_);
  fs::create_directories(path_);
  EXPECT_TRUE(file_.read().empty());
  EXPECT_FALSE(file_.add("x").ok()) << "a folder is in the way";
}

}  // namespace
}  // namespace zinc
