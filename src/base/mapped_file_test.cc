#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  const TestFolder folder_;
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, is_mapped_while_any_mapping_exists) {
  const std::filesystem::path path = put(folder_ / "data", "bytes");
  EXPECT_FALSE(is_mapped(path));
  {
    const Result<MappedFile> first = MappedFile::open(path);
    EXPECT_TRUE(is_mapped(path));
    Result<MappedFile> second = MappedFile::open(path);
    ASSERT_TRUE(first.ok() && second.ok());
    const MappedFile moved = std::move(second.value());
    EXPECT_TRUE(is_mapped(path));
  }
  EXPECT_FALSE(is_mapped(path));
  EXPECT_FALSE(is_mapped(folder_ / "absent"));
}

TEST_F(MappedFileTest, file_truncated_while_mapped_ends_the_process_with_its_name) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::filesystem::path path = put(folder_ / "model.gguf", std::string(100'000, 'x'));
  const auto read_after_truncation = [&](size_t n_left) {
    const Result<MappedFile> other = MappedFile::open(put(folder_ / "other", "y"));
    const Result<MappedFile> file = MappedFile::open(path);
    if (!other.ok() || !file.ok() || ::truncate(path.c_str(), static_cast<off_t>(n_left)) != 0) ::_exit(3);
    const volatile std::byte last = file.value().bytes().back();
    ::_exit(last == std::byte{'x'} ? 0 : 4);
  };
  EXPECT_EXIT(read_after_truncation(0), testing::ExitedWithCode(1), "model.gguf: the file was truncated");
  put(folder_ / "model.gguf", std::string(100'000, 'x'));
  EXPECT_EXIT(read_after_truncation(5'000), testing::ExitedWithCode(1), "model.gguf: the file was truncated");
}

TEST_F(MappedFileTest, sigbus_elsewhere_has_its_usual_effect) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto raise_after_unmapping = [&] {
    if (!MappedFile::open(put(folder_ / "data", "bytes")).ok()) ::_exit(3);
    ::raise(SIGBUS);  // the handler resets the default action
    ::raise(SIGBUS);
    ::_exit(0);
  };
  EXPECT_EXIT(raise_after_unmapping(), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedFileTest, bytes_match_the_file) {
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  const Result<MappedFile> file = MappedFile::open(put(folder_ / "data", bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(file.value()), bytes);
}

TEST_F(MappedFileTest, empty_file_maps_to_an_empty_span) {
  const Result<MappedFile> file = MappedFile::open(put(folder_ / "empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file.value().bytes().empty());
}

TEST_F(MappedFileTest, move_transfers_the_mapping) {
  MappedFile a = std::move(MappedFile::open(put(folder_ / "a", "first")).value());
  MappedFile b = std::move(a);
  EXPECT_EQ(text_of(b), "first");
  MappedFile c = std::move(MappedFile::open(put(folder_ / "c", "second")).value());
  c = std::move(b);
  EXPECT_EQ(text_of(c), "first");
}

TEST_F(MappedFileTest, mapping_survives_unlink) {
  const std::filesystem::path path = put(folder_ / "gone", "still here");
  const Result<MappedFile> file = MappedFile::open(path);
  std::filesystem::remove(path);
  EXPECT_EQ(text_of(file.value()), "still here");
}

TEST_F(MappedFileTest, missing_file_error_names_the_file) {
  const Result<MappedFile> file = MappedFile::open(folder_ / "nothing.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
  EXPECT_NE(file.error().message.find("nothing.gguf"), std::string::npos);
}

TEST_F(MappedFileTest, non_regular_file_is_an_error) {
  EXPECT_EQ(MappedFile::open(folder_.path()).error().code, ErrorCode::invalid_input);
  EXPECT_EQ(MappedFile::open("/dev/zero").error().code, ErrorCode::invalid_input);
}

TEST_F(MappedFileTest, pipe_without_writer_is_an_error_without_blocking) {
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::alarm(20);  // ends the test program should open() wait
  EXPECT_EQ(MappedFile::open(pipe).error().code, ErrorCode::invalid_input);
  ::alarm(0);
}

}  // namespace
}  // namespace zinc
