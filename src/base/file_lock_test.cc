#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

TEST(FileLock, second_process_waits_until_the_first_is_killed) {
  const TestFolder folder;
  const std::filesystem::path path = folder / "lock";
  int locked[2];
  ASSERT_EQ(::pipe(locked), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<FileLock> lock = FileLock::acquire(path, [] {});
    [[maybe_unused]] const ssize_t n = ::write(locked[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  bool waited = false;
  const Result<FileLock> lock = FileLock::acquire(path, [&] {
    waited = true;
    ::kill(child, SIGKILL);
  });
  ::waitpid(child, nullptr, 0);
  ::close(locked[0]);
  ::close(locked[1]);
  EXPECT_TRUE(lock.ok());
  EXPECT_TRUE(waited);
}

TEST(FileLock, released_lock_is_free_and_bad_path_is_an_error) {
  const TestFolder folder;
  const std::filesystem::path path = folder / "lock";
  const auto must_not_wait = [] { ADD_FAILURE() << "the lock was not released"; };
  for (int i = 0; i < 2; ++i) {
    const Result<FileLock> lock = FileLock::acquire(path, must_not_wait);
    EXPECT_TRUE(lock.ok());
  }
  EXPECT_FALSE(FileLock::acquire(path / "file as folder", must_not_wait).ok());
}

TEST(FileLock, file_that_its_holder_deletes_is_created_and_locked_again) {
  const TestFolder folder;
  const std::filesystem::path path = folder / "lock";
  std::optional<FileLock> first = std::move(FileLock::acquire(path, [] {}).value());
  const Result<FileLock> second = FileLock::acquire(path, [&] {  // has opened the file and waits
    std::filesystem::remove(path);
    first.reset();
  });
  ASSERT_TRUE(second.ok());
  const Result<FileLock> third = FileLock::acquire(
      path, [] {}, /*is_cancelled=*/[] { return true; });
  ASSERT_FALSE(third.ok()) << "two locks at the same path";
  EXPECT_EQ(third.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace zinc
