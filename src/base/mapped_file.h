// A file mapped read-only (mmap). Movable, not copyable. Holds a shared flock for its lifetime, so that other processes
// can see that the file is in use. Immutable: any number of threads may read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace zinc {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Drops the pages of `part` from memory (MADV_DONTNEED); a later read loads them from the file again. Ignores a
  // `part` outside of this mapping.
  void release_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::span<const std::byte> bytes, int fd) : bytes_(bytes), fd_(fd) {}
  std::span<const std::byte> bytes_;
  int fd_;
};

// Whether any process has the file open as a MappedFile. False where the file system does not support flock.
bool is_mapped(const std::filesystem::path& path);

}  // namespace zinc
