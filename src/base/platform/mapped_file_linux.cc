#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "base/mapped_file.h"

namespace zinc {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer would block forever. It does not change how files are read.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::not_found : ErrorCode::io;
    return fail(code, "{}: cannot open the file: {}", path.string(), std::strerror(errno));
  }
  struct stat status = {};
  if (::fstat(fd, &status) != 0) {
    const int reason = errno;
    ::close(fd);
    return fail(ErrorCode::io, "{}: cannot read the file's size: {}", path.string(), std::strerror(reason));
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::invalid_input, "{}: not a regular file", path.string());
  }
  const size_t n_bytes = static_cast<size_t>(status.st_size);
  ::flock(fd, LOCK_SH | LOCK_NB);               // is_mapped() looks for it; failure is harmless
  if (n_bytes == 0) return MappedFile({}, fd);  // mmap refuses an empty range
  void* address = ::mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) {
    const int reason = errno;
    ::close(fd);
    return fail(ErrorCode::out_of_memory, "{}: cannot map {} bytes: {}", path.string(), n_bytes, std::strerror(reason));
  }
  return MappedFile({static_cast<const std::byte*>(address), n_bytes}, fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

bool is_mapped(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool is_locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return is_locked;
}

void MappedFile::release_pages(std::span<const std::byte> part) const {
  const std::less_equal<> ordered;  // defined for pointers into different arrays too
  if (part.empty() || !ordered(bytes_.data(), part.data()) ||
      !ordered(part.data() + part.size(), bytes_.data() + bytes_.size())) {
    return;
  }
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<size_t>(part.data() - bytes_.data()), end = begin + part.size();
  const size_t first = (begin + page - 1) / page * page, last = end / page * page;  // partial pages at the ends stay
  if (first < last) ::madvise(const_cast<std::byte*>(bytes_.data()) + first, last - first, MADV_DONTNEED);
}

}  // namespace zinc
