#include "base/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace zinc {
namespace {

Error io_error(const std::filesystem::path& path, const char* what, int reason) {
  return fail(ErrorCode::io, "{}: cannot {}: {}", path.string(), what, std::strerror(reason));
}

// Turns SIGXFSZ (file size limit exceeded) into an EFBIG error, like a full disk.
class IgnoreSigxfsz {
 public:
  IgnoreSigxfsz() : previous_(std::signal(SIGXFSZ, SIG_IGN)) {}
  ~IgnoreSigxfsz() { std::signal(SIGXFSZ, previous_); }
  IgnoreSigxfsz(const IgnoreSigxfsz&) = delete;
  IgnoreSigxfsz& operator=(const IgnoreSigxfsz&) = delete;

 private:
  void (*previous_)(int);
};

}  // namespace

Result<RandomAccessFile> RandomAccessFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return io_error(path, "open the file for writing", errno);
  RandomAccessFile file(path, fd);
  struct stat state {};
  if (::fstat(fd, &state) != 0) return io_error(path, "stat the file", errno);
  if (!S_ISREG(state.st_mode)) return fail(ErrorCode::io, "{}: not a regular file; remove it", path.string());
  return file;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<uint64_t> RandomAccessFile::size() const {
  struct stat state {};
  if (::fstat(fd_, &state) != 0) return io_error(path_, "stat the file", errno);
  return static_cast<uint64_t>(state.st_size);
}

Status RandomAccessFile::resize(uint64_t n_bytes) {
  const IgnoreSigxfsz guard;
  ZINC_TRY(n_before, size());
  if (::ftruncate(fd_, static_cast<off_t>(n_bytes)) != 0) return io_error(path_, "set the size of the file", errno);
  if (n_bytes == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(n_bytes)) == 0) return ok_status();
  const int reason = errno;
  if (reason == EOPNOTSUPP || reason == ENOSYS || reason == EINTR) return ok_status();  // a later write reports it
  // Frees the partial reservation; the size must not claim space that is not allocated.
  if (::ftruncate(fd_, static_cast<off_t>(n_before)) != 0) return io_error(path_, "set the size of the file", errno);
  return io_error(path_, "allocate space for the file", reason);
}

Status RandomAccessFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  const IgnoreSigxfsz guard;
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_, "write the file", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return ok_status();
}

Result<size_t> RandomAccessFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  size_t n_read = 0;
  while (n_read < bytes.size()) {
    const ssize_t n = ::pread(fd_, bytes.data() + n_read, bytes.size() - n_read, static_cast<off_t>(offset + n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_, "read the file", errno);
    if (n == 0) break;
    n_read += static_cast<size_t>(n);
  }
  return n_read;
}

uint64_t allocated_bytes(const std::filesystem::path& path) {
  constexpr uint64_t kStatBlockBytes = 512;  // unit of st_blocks, independent of the file system's block size
  struct stat state {};
  return ::lstat(path.c_str(), &state) == 0 ? static_cast<uint64_t>(state.st_blocks) * kStatBlockBytes : 0;
}

}  // namespace zinc
