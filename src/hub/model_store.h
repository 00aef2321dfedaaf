// The models this machine holds for zinc: CACHE/models/ID/ has a model's files and manifest.json, which says where they
// came from and what they are. A folder without a manifest is an unfinished download; the file `source` in it says of
// what. Nothing outside the cache is ever removed.
#pragma once

#include <optional>

#include "base/file_lock.h"
#include "hub/settings.h"

namespace zinc {

struct InstalledFile {
  std::string name;
  uint64_t n_bytes = 0;
  std::string sha256;
  int64_t changed_ns = 0;  // time of change of the file that was hashed
};

struct InstalledModel {
  std::string id, source;
  std::string url;  // of the first file, without secrets; empty: it came another way
  std::filesystem::path folder;
  std::vector<InstalledFile> files;  // at least one; the first is what is opened
  bool is_verified = false;          // the hashes were stated by the catalog or the server, not only taken
  std::string name, architecture, quantization;
  uint64_t n_parameters = 0, max_context = 0;
  uint64_t memory_bytes = 0;  // for kCatalogContext positions; 0: the architecture is not known

  std::filesystem::path path() const { return folder / files.front().name; }
  uint64_t n_bytes() const;
};

class ModelStore {
 public:
  explicit ModelStore(const HubSettings& settings) : settings_(settings) {}

  std::filesystem::path folder(std::string_view id) const;
  std::vector<InstalledModel> list() const;     // by id
  std::vector<std::string> unfinished() const;  // ids of downloads that are not
  std::optional<InstalledModel> find(std::string_view id) const;
  bool has_files(const InstalledModel& model) const;     // of the right sizes
  bool is_untouched(const InstalledModel& model) const;  // and not changed since they were hashed, by their times
  // Whether the files are still the ones that were hashed. One whose time of change differs is hashed again, which may
  // take minutes. An error only if that was interrupted.
  Result<bool> is_intact(InstalledModel& model, const DownloadHooks& hooks) const;
  // Makes the folder and locks the id for this process; says so if it must wait.
  Result<FileLock> lock(std::string_view id, const DownloadHooks& hooks) const;
  // Whose folder it is: the source of the model in it, or of the unfinished download. Empty: nobody's.
  std::string owner(std::string_view id) const;
  // These need the lock.
  Status claim(std::string_view id, std::string_view source) const;  // for a download that begins
  void tidy(std::string_view id) const;  // removes the folder if it holds no file but the claim
  Status save(const InstalledModel& model) const;
  // With everything unfinished. Returns the bytes freed; an error if there is nothing of that id.
  Result<uint64_t> remove(std::string_view id) const;

  std::string default_model() const;                      // empty: none was chosen
  Status set_default_model(std::string_view name) const;  // empty: none any more

 private:
  std::filesystem::path default_path() const;
  const HubSettings& settings_;
};

std::optional<int64_t> changed_ns(const std::filesystem::path& file);

}  // namespace zinc
