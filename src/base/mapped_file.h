// A whole file mapped read-only. Movable, not copyable; the bytes live as long as the MappedFile, and so does a lock
// on the file, by which other processes see that it is in use.
// Immutable: any number of threads may read.
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
  // `part` of the bytes need not stay in memory: what is read again is read from the file again. A part that is not of
  // this file is none of its business.
  void release_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::span<const std::byte> bytes, int fd) : bytes_(bytes), fd_(fd) {}
  std::span<const std::byte> bytes_;
  int fd_;
};

// Whether a MappedFile of any process has it. Says no where the file system knows no locks.
bool is_mapped(const std::filesystem::path& path);

}  // namespace zinc
