// A file read and written at any place, for downloads that arrive out of order. Created if absent, never through a
// link. Movable; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace zinc {

class PositionedFile {
 public:
  static Result<PositionedFile> open(const std::filesystem::path& path);

  PositionedFile(PositionedFile&& other) noexcept;
  PositionedFile& operator=(PositionedFile&& other) noexcept;
  ~PositionedFile();

  Result<uint64_t> size() const;
  // Exactly so many bytes from now on: cut, or grown by zeros whose room on the disk is reserved where the file system
  // can do that. Where there is no room, the file is as long as it was.
  Status resize(uint64_t n_bytes);
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  Result<size_t> read_at(uint64_t offset, std::span<std::byte> bytes) const;  // fewer bytes only at the end of the file

 private:
  PositionedFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::filesystem::path path_;
  int fd_;  // -1 once moved from
};

// What the file takes on the disk, holes not counted; 0 if there is none.
uint64_t allocated_bytes(const std::filesystem::path& path);

}  // namespace zinc
