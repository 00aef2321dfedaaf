// A file that appears whole or not at all. Bytes go to a temporary file beside `path`; commit() makes them durable and
// renames it into place, replacing what was there. Without commit() the old file stays and the temporary one is
// removed; a process killed in between leaves at most `<path>.part-*`. A link is followed, and what is no regular file
// (a device, a pipe, a folder) is refused rather than replaced. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace zinc {

// The umask's or nobody else, from the first byte on; and none who could not read the file that is replaced.
enum class FileReaders : uint8_t { usual, owner_only };

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& wanted, FileReaders readers = FileReaders::usual);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();  // no write() may follow

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path temporary, int fd);
  std::filesystem::path path_, temporary_;
  int fd_;  // -1 once committed or moved from
};

Status write_file_atomically(const std::filesystem::path& path, std::string_view text,
                             FileReaders readers = FileReaders::usual);

// Makes `finished` (written and closed by anyone, on the same file system) durable and renames it to `path`.
Status rename_durably(const std::filesystem::path& finished, const std::filesystem::path& path);

}  // namespace zinc
