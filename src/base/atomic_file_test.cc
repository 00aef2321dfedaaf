#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <string>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class AtomicFileTest : public testing::Test {
 protected:
  size_t n_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  const TestFolder folder_;
  const fs::path path_ = folder_ / "file";
};

TEST_F(AtomicFileTest, files_of_killed_processes_are_removed_and_those_in_use_stay) {
  const pid_t child = ::fork();
  if (child == 0) {
    Result<AtomicFile> file = AtomicFile::create(folder_ / "m.cache");
    ::_exit(file.ok() && file.value().write(bytes_of("private")).ok() ? 0 : 1);  // as if killed: no destructor
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  put(folder_ / "m.cache.part-notes", "the user's");
  put(folder_ / "m.cache", "the cache");
  const Result<AtomicFile> in_use = AtomicFile::create(folder_ / "m.cache");
  ASSERT_TRUE(in_use.ok());
  EXPECT_EQ(n_files(), 4u);
  EXPECT_EQ(remove_partial_files(folder_.path(), ".cache"), 1);
  EXPECT_EQ(n_files(), 3u);
  EXPECT_EQ(remove_partial_files(folder_ / "nowhere", ".cache"), 0);
}

TEST_F(AtomicFileTest, commit_replaces_the_file_and_removes_the_temporary) {
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  Result<AtomicFile> file = AtomicFile::create(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value().write(bytes_of("new ")).ok());
  ASSERT_TRUE(file.value().write(bytes_of("bytes")).ok());
  EXPECT_EQ(contents(path_), "old") << "visible before commit";
  ASSERT_TRUE(file.value().commit().ok());
  EXPECT_EQ(contents(path_), "new bytes");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, destruction_without_commit_keeps_the_old_file) {
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  {
    Result<AtomicFile> file = AtomicFile::create(path_);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().write(bytes_of("half of the new b")).ok());
  }
  EXPECT_EQ(contents(path_), "old");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, kill_while_writing_keeps_the_old_file) {
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    Result<AtomicFile> file = AtomicFile::create(path_);
    if (!file.ok() || !file.value().write(bytes_of("half of the new b")).ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not write";
  EXPECT_EQ(contents(path_), "old");
  ASSERT_TRUE(write_file_atomically(path_, "new").ok());
  EXPECT_EQ(contents(path_), "new");
}

TEST_F(AtomicFileTest, error_names_the_file_and_leaves_no_temporary) {
  const fs::path missing = folder_ / "no such folder" / "file";
  const Status status = write_file_atomically(missing, "text");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_NE(status.error().message.find(missing.string()), std::string::npos) << status.error().message;

  fs::create_directory(path_);
  EXPECT_FALSE(write_file_atomically(path_, "text").ok());
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, non_regular_file_is_an_error_and_stays) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const Status status = write_file_atomically(path_, "text");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("not a regular file"), std::string::npos) << status.error().message;
  EXPECT_TRUE(fs::is_fifo(path_));
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, symlink_stays_and_its_target_is_replaced) {
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  fs::create_symlink("file", folder_ / "link");
  ASSERT_TRUE(write_file_atomically(folder_ / "link", "new").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(contents(path_), "new");
  EXPECT_EQ(n_files(), 2u);
}

TEST_F(AtomicFileTest, replacement_keeps_restricted_permissions) {
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(write_file_atomically(path_, "new").ok());
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(AtomicFileTest, rename_durably_replaces_the_old_file) {
  put(folder_ / "finished", "new");
  ASSERT_TRUE(write_file_atomically(path_, "old").ok());
  ASSERT_TRUE(rename_durably(folder_ / "finished", path_).ok());
  EXPECT_EQ(contents(path_), "new");
  EXPECT_EQ(n_files(), 1u);
  EXPECT_FALSE(rename_durably(folder_ / "finished", path_).ok());
}

}  // namespace
}  // namespace zinc
