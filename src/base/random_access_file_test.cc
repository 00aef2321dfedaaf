#include "base/random_access_file.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

class RandomAccessFileTest : public testing::Test {
 protected:
  const TestFolder folder_;
};

TEST_F(RandomAccessFileTest, out_of_order_writes_read_back_in_order) {
  Result<RandomAccessFile> file = RandomAccessFile::open(folder_ / "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file.value().resize(6).ok());
  ASSERT_TRUE(file.value().write_at(3, std::as_bytes(std::span(std::string_view("def")))).ok());
  ASSERT_TRUE(file.value().write_at(0, std::as_bytes(std::span(std::string_view("abc")))).ok());
  std::array<char, 8> text{};
  const Result<size_t> n_read = file.value().read_at(1, std::as_writable_bytes(std::span(text)));
  ASSERT_TRUE(n_read.ok());
  EXPECT_EQ(std::string(text.data(), n_read.value()), "bcdef");
  ASSERT_TRUE(file.value().resize(2).ok());
  EXPECT_EQ(file.value().size().value(), 2u);
}

TEST_F(RandomAccessFileTest, symlinks_and_folders_are_errors) {
  fs::create_symlink(put(folder_ / "real", "kept"), folder_ / "link");
  EXPECT_FALSE(RandomAccessFile::open(folder_ / "link").ok());
  EXPECT_FALSE(RandomAccessFile::open(folder_.path()).ok());
  EXPECT_FALSE(RandomAccessFile::open(folder_ / "none" / "f").ok());
}

// /dev/shm has a fixed size and rejects a larger file before allocating any of it.
TEST_F(RandomAccessFileTest, failed_resize_keeps_the_size) {
  std::error_code error;
  const fs::space_info space = fs::space("/dev/shm", error);
  if (error || space.capacity == 0) GTEST_SKIP() << "no /dev/shm on this system";
  const TestFolder small("/dev/shm");
  const fs::path path = small / "f";
  Result<RandomAccessFile> file = RandomAccessFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file.value().resize(10'000).ok());
  EXPECT_GE(allocated_bytes(path), 10'000u);
  EXPECT_FALSE(file.value().resize(uint64_t{2} * space.capacity).ok());
  EXPECT_EQ(file.value().size().value(), 10'000u);
}

TEST_F(RandomAccessFileTest, holes_use_no_disk_space) {
  fs::resize_file(put(folder_ / "hole", "x"), 64 << 20);
  EXPECT_LT(allocated_bytes(folder_ / "hole"), 1u << 20);
  EXPECT_EQ(allocated_bytes(folder_ / "absent"), 0u);
}

}  // namespace
}  // namespace zinc
