// Atomic file replacement. Bytes go to a temporary file next to `path`; commit() syncs it and renames it over `path`.
// Without commit() the old file stays and the temporary file is removed; a killed process leaves at most
// `<path>.part-*`, which remove_partial_files() removes. Symbolic links are followed. A path that is not a regular file
// (a device, a pipe, a folder) is an error. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace zinc {

// Set when the temporary file is created. Never wider than the permissions of the replaced file.
enum class FilePermissions : uint8_t { by_umask, owner_only };

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& target,
                                   FilePermissions permissions = FilePermissions::by_umask);

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

// Removes the temporary files that killed processes left in `folder` for files whose names end in `suffix`. Those that
// a process is writing are locked (flock) and stay. Returns how many it removed.
int remove_partial_files(const std::filesystem::path& folder, std::string_view suffix);

Status write_file_atomically(const std::filesystem::path& path, std::string_view text,
                             FilePermissions permissions = FilePermissions::by_umask);

// Syncs `finished` (already written and closed, on the same file system) and renames it to `path`.
Status rename_durably(const std::filesystem::path& finished, const std::filesystem::path& path);

}  // namespace zinc
