#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace zinc {
namespace {

namespace fs = std::filesystem;

Error io_error(const fs::path& path, const char* what) {
  return fail(ErrorCode::io, "{}: cannot {}: {}", path.string(), what, std::strerror(errno));
}

// Without fsync on the folder a crash may undo a rename that was already reported as done.
Status sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error(folder, "open the folder");
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // EINVAL: this file system cannot sync folders
  Status status = synced ? ok_status() : Status(io_error(folder, "sync the folder"));
  ::close(fd);
  return status;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Names left behind by a killed process with the same pid are skipped, not reused.
constexpr int kMaxNameTries = 1000;

}  // namespace

AtomicFile::AtomicFile(fs::path path, fs::path temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const fs::path& target, FilePermissions permissions) {
  static std::atomic<unsigned> n_created = 0;
  std::error_code ignored;  // creating the file reports the reason
  const fs::path canonical = fs::weakly_canonical(target, ignored);
  const fs::path path = fs::is_symlink(target, ignored) && !canonical.empty() ? canonical : target;
  const fs::file_status existing = fs::status(path, ignored);
  if (fs::exists(existing) && !fs::is_regular_file(existing)) {
    return fail(ErrorCode::io, "{}: not a regular file, so it cannot be replaced; choose another path", path.string());
  }
  mode_t mode = permissions == FilePermissions::owner_only ? 0600 : 0666;
  if (fs::exists(existing)) mode &= static_cast<mode_t>(existing.permissions() & fs::perms::all);
  for (int i = 0; i < kMaxNameTries; ++i) {
    fs::path temporary = path;
    temporary += fmt::format(".part-{}-{}", ::getpid(), n_created++);
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd >= 0) {
      ::flock(fd, LOCK_EX | LOCK_NB);  // remove_partial_files() looks for it; failure is harmless
      return AtomicFile(path, std::move(temporary), fd);
    }
    if (errno != EEXIST) break;
  }
  return io_error(path, "create the file");
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  ZINC_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t n_written = ::write(fd_, bytes.data(), bytes.size());
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written < 0) return io_error(path_, "write the file");
    bytes = bytes.subspan(static_cast<size_t>(n_written));
  }
  return ok_status();
}

Status AtomicFile::commit() {
  ZINC_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) return io_error(path_, "sync the file");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return io_error(path_, "rename the temporary file");
  ::close(std::exchange(fd_, -1));
  return sync_folder(folder_of(path_));
}

int remove_partial_files(const fs::path& folder, std::string_view suffix) {
  const std::string infix = fmt::format("{}.part-", suffix);
  std::error_code ignored;  // a folder that cannot be read has nothing to remove
  int n_removed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const size_t at = name.rfind(infix);
    const bool is_partial = at != name.npos && name.find_first_not_of("0123456789-", at + infix.size()) == name.npos;
    if (!is_partial || !entry.is_regular_file(ignored)) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::unlink(entry.path().c_str()) == 0) ++n_removed;
    ::close(fd);
  }
  return n_removed;
}

Status write_file_atomically(const fs::path& path, std::string_view text, FilePermissions permissions) {
  ZINC_TRY(file, AtomicFile::create(path, permissions));
  ZINC_TRY(written, file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Status rename_durably(const fs::path& finished, const fs::path& path) {
  const int fd = ::open(finished.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(finished, "open the file");
  const bool synced = ::fsync(fd) == 0;
  const int reason = errno;
  ::close(fd);
  errno = reason;
  if (!synced) return io_error(finished, "sync the file");
  if (::rename(finished.c_str(), path.c_str()) != 0) return io_error(path, "rename the finished file");
  return sync_folder(folder_of(path));
}

}  // namespace zinc
