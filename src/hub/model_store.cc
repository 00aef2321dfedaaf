#include "hub/model_store.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sanitize_for_terminal.h"
#include "hub/file_hash.h"
#include "hub/journal.h"
#include "hub/source.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kClaim = "source";
constexpr int64_t kFormat = 1;
constexpr uint64_t kMaxJsonBytes = 1 << 20;

std::optional<json::object> read_json(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kMaxJsonBytes || error) return std::nullopt;
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok()) return std::nullopt;
  const auto bytes = mapped.value().bytes();
  Result<json::value> parsed = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!parsed.ok() || !parsed.value().is_object()) return std::nullopt;
  return std::move(parsed.value().as_object());
}

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

int64_t number_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_int64() ? value->as_int64() : 0;
}

uint64_t count_at(const json::object& object, std::string_view key) {
  return static_cast<uint64_t>(std::max<int64_t>(0, number_at(object, key)));
}

std::optional<InstalledFile> parse_file(const json::value& value) {
  const json::object* object = value.if_object();
  if (!object) return std::nullopt;
  InstalledFile file{text_at(*object, "name"), count_at(*object, "bytes"), text_at(*object, "sha256"),
                     number_at(*object, "changed_ns")};
  if (!is_plain_file_name(file.name) || !parse_sha256(file.sha256)) return std::nullopt;
  return file;
}

std::optional<InstalledModel> parse_manifest(const json::object& object, const fs::path& folder) {
  const json::value* files = object.if_contains("files");
  if (number_at(object, "format") != kFormat || !files || !files->is_array()) return std::nullopt;
  InstalledModel model;
  model.id = folder.filename().string();
  model.folder = folder;
  model.source = text_at(object, "source");
  model.url = text_at(object, "url");
  for (const json::value& value : files->as_array()) {
    std::optional<InstalledFile> file = parse_file(value);
    if (!file) return std::nullopt;
    model.files.push_back(std::move(*file));
  }
  if (model.files.empty()) return std::nullopt;
  const json::value* verified = object.if_contains("verified");
  model.is_verified = verified && verified->is_bool() && verified->as_bool();
  model.name = text_at(object, "name");
  model.architecture = text_at(object, "architecture");
  model.quantization = text_at(object, "quantization");
  model.n_parameters = count_at(object, "parameters");
  model.max_context = count_at(object, "max_context");
  return model;
}

json::object manifest_of(const InstalledModel& model) {
  json::array files;
  for (const InstalledFile& file : model.files) {
    files.push_back(json::object{{"name", file.name},
                                 {"bytes", static_cast<int64_t>(file.n_bytes)},
                                 {"sha256", file.sha256},
                                 {"changed_ns", file.modified_ns}});
  }
  return {{"format", kFormat},
          {"id", model.id},
          {"source", model.source},
          {"url", model.url},
          {"files", std::move(files)},
          {"verified", model.is_verified},
          {"name", model.name},
          {"architecture", model.architecture},
          {"quantization", model.quantization},
          {"parameters", static_cast<int64_t>(model.n_parameters)},
          {"max_context", static_cast<int64_t>(model.max_context)}};
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t n_bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (it->is_symlink(unreadable) || !it->is_regular_file(unreadable)) continue;
    const uint64_t n = it->file_size(unreadable);
    if (!unreadable) n_bytes += n;
  }
  return n_bytes;
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return ok_status();
  return fail(ErrorCode::io,
              "{}: cannot create the folder: {}; set XDG_CACHE_HOME to a folder you may write to, or use a model file: "
              "zinc run MODEL.gguf PROMPT",
              folder.string(), error.message());
}

}  // namespace

uint64_t InstalledModel::n_bytes() const {
  uint64_t sum = 0;
  for (const InstalledFile& file : files) sum += file.n_bytes;
  return sum;
}

std::optional<int64_t> modified_ns(const fs::path& file) {
  std::error_code error;
  const auto changed = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(changed.time_since_epoch()).count();
}

fs::path ModelStore::folder(std::string_view id) const { return settings_.cache / "models" / id; }

std::vector<InstalledModel> ModelStore::list() const {
  std::vector<InstalledModel> models;
  std::error_code error;
  for (fs::directory_iterator it(settings_.cache / "models", error), end; !error && it != end; it.increment(error)) {
    if (auto model = find(it->path().filename().string())) models.push_back(std::move(*model));
  }
  std::ranges::sort(models, {}, &InstalledModel::id);
  return models;
}

std::vector<std::string> ModelStore::unfinished() const {
  std::vector<std::string> ids;
  std::error_code error;
  for (fs::directory_iterator it(settings_.cache / "models", error), end; !error && it != end; it.increment(error)) {
    const std::string id = it->path().filename().string();
    if (is_plain_file_name(id) && !find(id) && !source_of(id).empty()) ids.push_back(id);
  }
  std::ranges::sort(ids);
  return ids;
}

std::optional<InstalledModel> ModelStore::find(std::string_view id) const {
  if (!is_plain_file_name(id)) return std::nullopt;
  const std::optional<json::object> manifest = read_json(folder(id) / kManifest);
  return manifest ? parse_manifest(*manifest, folder(id)) : std::nullopt;
}

bool ModelStore::has_files(const InstalledModel& model) const {
  return std::ranges::all_of(model.files, [&](const InstalledFile& file) {
    std::error_code error;
    return fs::file_size(model.folder / file.name, error) == file.n_bytes && !error;
  });
}

bool ModelStore::is_unmodified(const InstalledModel& model) const {
  return has_files(model) && std::ranges::all_of(model.files, [&](const InstalledFile& file) {
           return modified_ns(model.folder / file.name) == file.modified_ns;
         });
}

Result<bool> ModelStore::is_intact(InstalledModel& model, const DownloadHooks& hooks) const {
  if (is_unmodified(model)) return true;
  if (!has_files(model)) return false;
  for (InstalledFile& file : model.files) {
    const fs::path path = model.folder / file.name;
    const std::optional<int64_t> changed = modified_ns(path);
    if (changed == file.modified_ns) continue;
    ZINC_TRY(is_same, has_sha256(path, file.n_bytes, file.sha256, hooks));
    if (!changed || !is_same) return false;
    file.modified_ns = *changed;
  }
  static_cast<void>(save(model).ok());  // in a read-only cache the file is hashed again next time
  return true;
}

Result<FileLock> ModelStore::lock(std::string_view id, const DownloadHooks& hooks) const {
  if (Status created = make_folder(folder(id)); !created.ok()) return created.error();
  const fs::path locks = settings_.cache / "locks";
  if (Status created = make_folder(locks); !created.ok()) return created.error();
  const auto on_wait = [&] { hooks.on_message("another zinc process is downloading this model; waiting for it"); };
  ZINC_TRY(lock, FileLock::acquire(locks / (std::string(id) + ".lock"), on_wait, hooks.cancelled));
  // The previous holder of the lock may have removed the model.
  if (Status created = make_folder(folder(id)); !created.ok()) return created.error();
  return std::move(lock);
}

std::string ModelStore::source_of(std::string_view id) const {
  if (const std::optional<InstalledModel> model = find(id)) return model->source;
  const std::optional<json::object> claim = read_json(folder(id) / kClaim);
  return claim ? text_at(*claim, "source") : std::string();
}

Status ModelStore::claim(std::string_view id, std::string_view source) const {
  return write_file_atomically(folder(id) / kClaim, to_json(json::object{{"source", source}}) + "\n");
}

void ModelStore::remove_if_empty(std::string_view id) const {
  std::error_code error;
  for (fs::directory_iterator it(folder(id), error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != kClaim) return;
  }
  fs::remove(folder(id) / kClaim, error);
  fs::remove(folder(id), error);
}

Status ModelStore::save(const InstalledModel& model) const {
  const Status saved = write_file_atomically(model.folder / kManifest, to_pretty_json(manifest_of(model)) + "\n");
  std::error_code ignored;
  if (saved.ok()) fs::remove(model.folder / kClaim, ignored);  // the manifest has the source now
  return saved;
}

Result<uint64_t> ModelStore::remove(std::string_view id) const {
  std::error_code error;
  const fs::path model_folder = folder(id);
  if (!is_plain_file_name(id) || !fs::is_directory(fs::symlink_status(model_folder, error))) {
    return fail(ErrorCode::not_found, "no model '{}' is installed; see `zinc list`", sanitize_for_terminal(id));
  }
  const uint64_t n_bytes = bytes_below(model_folder);
  fs::remove(model_folder / kManifest, error);  // first: after a crash the rest counts as an unfinished download
  fs::remove_all(model_folder, error);
  if (error) return fail(ErrorCode::io, "{}: cannot remove the model: {}", model_folder.string(), error.message());
  return n_bytes;
}

fs::path ModelStore::default_path() const { return settings_.config / "default-model.json"; }

std::string ModelStore::default_model() const {
  const std::optional<json::object> object = read_json(default_path());
  return object ? text_at(*object, "model") : std::string();
}

Status ModelStore::set_default_model(std::string_view name) const {
  std::error_code error;
  if (name.empty()) {
    fs::remove(default_path(), error);
    return ok_status();
  }
  fs::create_directories(settings_.config, error);
  if (error) return fail(ErrorCode::io, "{}: cannot create the folder: {}", settings_.config.string(), error.message());
  return write_file_atomically(default_path(), to_json(json::object{{"model", name}}) + "\n");
}

}  // namespace zinc
