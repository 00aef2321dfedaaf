#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>

#include "base/mapped_file.h"

namespace zinc {
namespace {

// Mappings that the signal handler can name. A fixed table: a handler may not lock or allocate.
struct MappedRange {
  std::atomic<const std::byte*> begin = nullptr;  // nullptr: free; set last, cleared first
  std::atomic<size_t> n_bytes = 0;
  char path[512] = {};
};
constinit MappedRange g_ranges[256];  // further mappings are reported without a name
constinit std::atomic_flag g_ranges_lock = ATOMIC_FLAG_INIT;

void write_stderr(std::string_view text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nowhere left to report it
}

// Reading a page that the file no longer has, or that the disk cannot deliver, raises SIGBUS: the process ends with a
// message that names the file. Overwritten bytes are not noticed.
void on_sigbus(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  const std::less_equal<> ordered;
  for (const MappedRange& range : g_ranges) {
    const std::byte* begin = range.begin;
    if (!begin || !ordered(begin, address) || !ordered(address + 1, begin + range.n_bytes)) continue;
    write_stderr("zinc: error: ");
    write_stderr(range.path);
    write_stderr(": the file was truncated or became unreadable while it was in use; restore it and start again\n");
    ::_exit(1);
  }
  ::signal(SIGBUS, SIG_DFL);  // not ours: the access is repeated, and ends the process as usual
}

void add_range(std::span<const std::byte> bytes, const std::string& path) {
  static const int installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, nullptr);
  }();
  if (installed != 0) return;
  while (g_ranges_lock.test_and_set()) std::this_thread::yield();
  for (MappedRange& range : g_ranges) {
    if (range.begin) continue;
    path.copy(range.path, sizeof range.path - 1);
    range.path[std::min(path.size(), sizeof range.path - 1)] = '\0';
    range.n_bytes = bytes.size();
    range.begin = bytes.data();
    break;
  }
  g_ranges_lock.clear();
}

void remove_range(const std::byte* begin) {
  for (MappedRange& range : g_ranges) {
    const std::byte* expected = begin;
    if (range.begin.compare_exchange_strong(expected, nullptr)) return;
  }
}

}  // namespace

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
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(address), n_bytes);
  add_range(bytes, path.string());
  return MappedFile(bytes, fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) remove_range(bytes_.data());
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
