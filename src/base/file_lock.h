// An exclusive lock between processes, held on a file (created if absent, never removed) while the FileLock lives.
// The system releases it when the process ends in any way, so a crash leaves nothing locked.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"

namespace zinc {

class FileLock {
 public:
  // Waits for as long as another process holds the lock; `on_wait` is called once before waiting. `gives_up` is asked
  // several times a second then; when it says yes, the error is `cancelled`.
  static Result<FileLock> acquire(
      const std::filesystem::path& path, const std::function<void()>& on_wait,
      const std::function<bool()>& gives_up = [] { return false; });

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace zinc
