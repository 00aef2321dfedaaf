#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace zinc {

Result<FileLock> FileLock::acquire(const std::filesystem::path& path, const std::function<void()>& on_wait,
                                   const std::function<bool()>& is_cancelled) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return fail(ErrorCode::io, "{}: cannot open the lock file: {}", path.string(), std::strerror(errno));
  }
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) on_wait();
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR && errno != EWOULDBLOCK) {
      return fail(ErrorCode::io, "{}: cannot lock: {}", path.string(), std::strerror(errno));
    }
    if (is_cancelled()) return fail(ErrorCode::cancelled, "interrupted while waiting for another process");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace zinc
