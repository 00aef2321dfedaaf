// A whole file mapped read-only. Movable, not copyable; the bytes live as long as the MappedFile.
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

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// The pages of `bytes`, part of some MappedFile, need not stay in memory: reading them again reads the file again.
void release_mapped_pages(std::span<const std::byte> bytes);

}  // namespace zinc
