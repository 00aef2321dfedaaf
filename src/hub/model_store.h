// Models installed by zinc: CACHE/models/ID/ has a model's files and manifest.json with their source, hashes and
// metadata. A folder without a manifest is an unfinished download; its file `source` names the source. Nothing outside
// the cache is ever removed.
#pragma once

#include <optional>

#include "base/file_lock.h"
#include "hub/settings.h"

namespace zinc {

struct InstalledFile {
  std::string name;
  uint64_t n_bytes = 0;
  std::string sha256;
  int64_t modified_ns = 0;  // mtime of the file when it was hashed
};

struct InstalledModel {
  std::string id, source;
  std::string url;  // of the first file, without secrets; empty: not downloaded from a URL
  std::filesystem::path folder;
  std::vector<InstalledFile> files;  // at least one; the first is opened
  bool is_verified = false;          // the hashes were compared with those of the catalog or the server
  std::string name, architecture, quantization;
  uint64_t n_parameters = 0, max_context = 0;

  std::filesystem::path path() const { return folder / files.front().name; }
  uint64_t n_bytes() const;
};

class ModelStore {
 public:
  explicit ModelStore(const HubSettings& settings) : settings_(settings) {}

  std::filesystem::path folder(std::string_view id) const;
  std::vector<InstalledModel> list() const;     // by id
  std::vector<std::string> unfinished() const;  // ids of unfinished downloads
  std::optional<InstalledModel> find(std::string_view id) const;
  bool has_files(const InstalledModel& model) const;      // with the right sizes
  bool is_unmodified(const InstalledModel& model) const;  // and with unchanged mtimes
  // Whether the files still have their hashes. A file with a different mtime is hashed again, which may take minutes.
  // An error only if interrupted.
  Result<bool> is_intact(InstalledModel& model, const DownloadHooks& hooks) const;
  // Creates the folder and locks the id for this process; reports if it must wait.
  Result<FileLock> lock(std::string_view id, const DownloadHooks& hooks) const;
  // The source of the model or unfinished download in the folder; empty: none.
  std::string source_of(std::string_view id) const;
  // REQUIRES for these: the lock is held.
  Status claim(std::string_view id, std::string_view source) const;  // at the start of a download
  void remove_if_empty(std::string_view id) const;                   // if the folder has no file but the claim
  Status save(const InstalledModel& model) const;
  // Including unfinished downloads. Returns the bytes freed; an unknown id is an error.
  Result<uint64_t> remove(std::string_view id) const;

  std::string default_model() const;                      // empty: not set
  Status set_default_model(std::string_view name) const;  // empty: unset

 private:
  std::filesystem::path default_path() const;
  const HubSettings& settings_;
};

std::optional<int64_t> modified_ns(const std::filesystem::path& file);

}  // namespace zinc
