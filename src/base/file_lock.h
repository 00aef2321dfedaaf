// An exclusive inter-process lock on a file (created if absent), held for the lifetime of the FileLock. The kernel
// releases it when the process exits or crashes. The file stays; only the process that holds the lock may delete it.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"

namespace zinc {

class FileLock {
 public:
  // Blocks while another process holds the lock; calls `on_wait` once before waiting. Polls `is_cancelled` several
  // times a second; when it returns true, the error is `cancelled`.
  static Result<FileLock> acquire(
      const std::filesystem::path& path, const std::function<void()>& on_wait,
      const std::function<bool()>& is_cancelled = [] { return false; });

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace zinc
