#include "hub/ollama_store.h"

#include <algorithm>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/nearest_name.h"
#include "base/sanitize_for_terminal.h"
#include "hub/journal.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxManifestBytes = 1 << 20;
constexpr std::string_view kModelLayer = "application/vnd.ollama.image.model";

std::optional<json::value> read_manifest(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kMaxManifestBytes || error) return std::nullopt;
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok()) return std::nullopt;
  const auto bytes = mapped.value().bytes();
  Result<json::value> parsed = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return parsed.ok() ? std::optional(std::move(parsed.value())) : std::nullopt;
}

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

// The file of the model layer. The digest is checked first: an invalid one could name a file anywhere.
std::optional<fs::path> model_blob(const json::value& manifest, const fs::path& store) {
  const json::object* root = manifest.if_object();
  const json::value* layers = root ? root->if_contains("layers") : nullptr;
  if (!layers || !layers->is_array()) return std::nullopt;
  for (const json::value& layer : layers->as_array()) {
    const json::object* object = layer.if_object();
    if (!object || text_at(*object, "mediaType") != kModelLayer) continue;
    constexpr std::string_view kScheme = "sha256:";
    const std::string digest = text_at(*object, "digest");
    if (!digest.starts_with(kScheme) || !parse_sha256(digest.substr(kScheme.size()))) return std::nullopt;
    return store / "blobs" / ("sha256-" + digest.substr(kScheme.size()));
  }
  return std::nullopt;
}

// manifests/HOST/library/NAME/TAG, or manifests/HOST/NAMESPACE/NAME/TAG.
std::optional<OllamaModel> model_at(const fs::path& store, const fs::path& manifest_path) {
  std::vector<std::string> words;
  for (const fs::path& part : manifest_path.lexically_relative(store / "manifests")) words.push_back(part.string());
  if (words.size() != 4) return std::nullopt;
  const std::optional<json::value> manifest = read_manifest(manifest_path);
  const std::optional<fs::path> blob = manifest ? model_blob(*manifest, store) : std::nullopt;
  std::error_code error;
  if (!blob || !fs::is_regular_file(*blob, error)) return std::nullopt;
  const uint64_t n_bytes = fs::file_size(*blob, error);
  if (error) return std::nullopt;
  const std::string name = words[1] == "library" ? words[2] : words[1] + "/" + words[2];
  return OllamaModel{words[0], name, words[3], *blob, n_bytes};
}

std::string full_name(const OllamaModel& model) {
  const bool is_of_library = model.name.find('/') == std::string::npos;
  return fmt::format("{}/{}{}", model.host, is_of_library ? "library/" : "", model.name);
}

// Prefixes the host to models of several hosts with the same name. REQUIRES: sorted by name and tag.
void disambiguate(std::vector<OllamaModel>& models) {
  const auto key = [](const OllamaModel& m) { return std::pair(m.name, m.tag); };
  for (auto begin = models.begin(); begin != models.end();) {
    const auto end = std::find_if(begin, models.end(), [&](const OllamaModel& m) { return key(m) != key(*begin); });
    const bool is_clear = std::all_of(begin, end, [&](const OllamaModel& m) { return m.host == begin->host; });
    if (!is_clear) std::for_each(begin, end, [](OllamaModel& m) { m.name = full_name(m); });
    begin = end;
  }
}

}  // namespace

std::vector<OllamaModel> list_ollama_models(std::span<const fs::path> stores) {
  std::vector<OllamaModel> models;
  for (const fs::path& store : stores) {
    std::error_code error;
    const auto options = fs::directory_options::skip_permission_denied;
    fs::recursive_directory_iterator it(store / "manifests", options, error), end;
    for (; !error && it != end; it.increment(error)) {
      std::error_code unreadable;
      if (!it->is_regular_file(unreadable) || it.depth() != 3) continue;
      if (auto model = model_at(store, it->path())) models.push_back(std::move(*model));
    }
  }
  std::ranges::stable_sort(models, {}, [](const OllamaModel& m) { return std::pair(m.name, m.tag); });
  disambiguate(models);
  return models;
}

Result<OllamaModel> find_ollama_model(std::span<const fs::path> stores, const std::string& name,
                                      const std::string& tag) {
  const std::vector<OllamaModel> models = list_ollama_models(stores);
  std::vector<std::string> names;
  std::string others;  // the same name, of several hosts
  for (const OllamaModel& model : models) {
    if ((model.name == name || full_name(model) == name) && model.tag == tag) return model;
    names.push_back(fmt::format("{}:{}", model.name, model.tag));
    const bool has_host = model.name.starts_with(model.host + "/");
    if (has_host && names.back().ends_with(fmt::format("/{}:{}", name, tag))) others += " ollama:" + names.back();
  }
  if (!others.empty()) {
    return fail(ErrorCode::invalid_input, "ollama:{}:{}: Ollama has several models with this name; choose one:{}",
                sanitize_for_terminal(name), sanitize_for_terminal(tag), sanitize_for_terminal(others, 400));
  }
  if (models.empty()) {
    return fail(ErrorCode::not_found,
                "ollama:{}: no readable Ollama models found; if they are stored elsewhere, set OLLAMA_MODELS",
                sanitize_for_terminal(name));
  }
  const std::optional<std::string> nearest = nearest_name(name + ":" + tag, names);
  return fail(ErrorCode::not_found, "ollama:{}:{}: Ollama does not have this model; {}", sanitize_for_terminal(name),
              sanitize_for_terminal(tag),
              nearest ? fmt::format("did you mean ollama:{}?", *nearest)
                      : fmt::format("`zinc list` shows the {} it has", models.size()));
}

}  // namespace zinc
