// A file read and written at any offset (pread, pwrite), for downloads that arrive out of order. Created if absent;
// symbolic links are not followed. Movable; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace zinc {

class RandomAccessFile {
 public:
  static Result<RandomAccessFile> open(const std::filesystem::path& path);

  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  Result<uint64_t> size() const;
  // Truncates, or grows with zeros; disk space is reserved where the file system supports fallocate(). On error the
  // size is unchanged.
  Status resize(uint64_t n_bytes);
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  Result<size_t> read_at(uint64_t offset, std::span<std::byte> bytes) const;  // fewer bytes only at the end of the file

 private:
  RandomAccessFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::filesystem::path path_;
  int fd_;  // -1 once moved from
};

// Disk space used by the file, without holes; 0 if it does not exist.
uint64_t allocated_bytes(const std::filesystem::path& path);

}  // namespace zinc
