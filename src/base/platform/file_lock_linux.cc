#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace zinc {

namespace {

// False if the file was deleted after it was opened: another process may lock a new one at this path.
bool is_at_path(int fd, const std::filesystem::path& path) {
  struct stat opened = {}, named = {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::filesystem::path& path, const std::function<void()>& on_wait,
                                   const std::function<bool()>& is_cancelled) {
  bool has_waited = false;
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
      return fail(ErrorCode::io, "{}: cannot open the lock file: {}", path.string(), std::strerror(errno));
    }
    FileLock lock(fd);
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) {
        return fail(ErrorCode::io, "{}: cannot lock: {}", path.string(), std::strerror(errno));
      }
      if (!std::exchange(has_waited, true)) {
        on_wait();
        continue;
      }
      if (is_cancelled()) return fail(ErrorCode::cancelled, "interrupted while waiting for another process");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (is_at_path(fd, path)) return lock;
  }
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
