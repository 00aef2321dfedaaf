#include "hub/resolve.h"

#include <fmt/ranges.h>

#include "base/nearest_name.h"
#include "base/sanitize_for_terminal.h"
#include "hub/model_names.h"
#include "hub/ollama_store.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& name) {
  std::error_code unreadable;  // a long prompt is not a valid file name
  const fs::file_status status = fs::status(fs::path(name), unreadable);
  return fs::exists(status) && !fs::is_directory(status);
}

bool looks_like_path(const std::string& name) {
  std::error_code unreadable;
  const bool exists = fs::exists(fs::path(name), unreadable);
  return exists || name.ends_with(".gguf") || (name.find('/') != std::string::npos && !is_repo_name(name));
}

std::vector<std::string> known_ids(const HubSettings& settings) {
  std::vector<std::string> names;
  for (const CatalogModel& model : catalog_models()) names.emplace_back(model.id);
  for (const InstalledModel& model : ModelStore(settings).list()) names.push_back(model.id);
  return names;
}

// Ollama's names after the ids: "smolm2" is nearly "smollm2", and far from every id.
std::optional<std::string> nearest_known_name(std::string_view typed, std::vector<std::string> names) {
  for (const std::string_view alias : catalog_alias_names()) names.emplace_back(alias);
  return nearest_name(typed, names);
}

Error unknown_model(const HubSettings& settings, const std::string& name) {
  const std::vector<std::string> names = known_ids(settings);
  if (const std::vector<std::string> several = match_model_name(name, names); several.size() > 1) {
    return fail(ErrorCode::not_found, "several models begin with '{}': {}; type more of the name",
                sanitize_for_terminal(name), fmt::join(several, ", "));
  }
  std::optional<std::string> nearest = nearest_known_name(name, names);
  if (is_repo_name(name)) nearest = "hf:" + name;
  return fail(ErrorCode::not_found,
              "unknown model '{}'; {}use a name from `zinc list`, the path of a file, or a source: hf:ORG/REPO[:FILE], "
              "https://..., pip:PACKAGE or ollama:NAME",
              sanitize_for_terminal(name), nearest ? fmt::format("did you mean '{}'? ", *nearest) : "");
}

// In huggingface_hub's cache: at the pinned revision, or at any revision if the hash matches. A repository without a
// file name means the default quantization; only offline, whichever file the cache has.
std::optional<fs::path> find_cached(const HubSettings& settings, const ModelReference& reference) {
  if (reference.source.kind != SourceKind::hugging_face) return std::nullopt;
  Source wanted = reference.source;
  if (wanted.file.empty() && !settings.offline) wanted.file = kDefaultQuantization;
  const std::string sha256(reference.catalog ? reference.catalog->file.sha256 : "");
  if (auto path = find_in_hf_cache(settings.hf_cache, wanted, sha256)) return path;
  if (sha256.empty() || reference.source.revision.empty()) return std::nullopt;
  Source newest = reference.source;
  newest.revision.clear();
  return find_in_hf_cache(settings.hf_cache, newest, sha256);
}

}  // namespace

std::string full_model_name(const HubSettings& settings, const std::string& typed) {
  if (has_source_prefix(typed) || looks_like_path(typed) || ModelStore(settings).find(typed)) return typed;
  const std::vector<std::string> meant = match_model_name(typed, known_ids(settings));
  return meant.size() == 1 ? meant.front() : typed;
}

bool names_model(const HubSettings& settings, const std::string& word) {
  if (word.ends_with(".gguf") || is_file(word)) return true;
  if (has_source_prefix(word)) return parse_source(word).ok();
  const std::string name = full_model_name(settings, word);
  return find_catalog_model(name) || ModelStore(settings).find(name);
}

bool resembles_model(const HubSettings& settings, const std::string& word) {
  return resembles_model_name(word, known_ids(settings));
}

Result<ModelReference> make_model_reference(const HubSettings& settings, const std::string& typed) {
  const std::string name = full_model_name(settings, typed);
  if (const CatalogModel* model = find_catalog_model(name)) {
    ZINC_TRY(source, parse_source(model->source));
    return ModelReference{std::string(model->id), std::move(source), model};
  }
  if (has_source_prefix(name)) {
    ZINC_TRY(source, parse_source(name));
    return ModelReference{"", std::move(source), nullptr};
  }
  const std::optional<InstalledModel> installed = ModelStore(settings).find(name);
  if (!installed) return unknown_model(settings, name);
  if (!has_source_prefix(installed->source)) {
    return fail(ErrorCode::invalid_input,
                "{}: the manifest of '{}' does not name its source; remove it with "
                "`zinc rm {}`",
                installed->folder.string(), name, name);
  }
  ZINC_TRY(source, parse_source(installed->source));
  return ModelReference{installed->id, std::move(source), nullptr};
}

Result<std::optional<FoundModel>> find_model(const HubSettings& settings, const std::string& typed) {
  using Found = std::optional<FoundModel>;
  const std::string name = full_model_name(settings, typed);
  if (!has_source_prefix(name) && is_file(name)) return Found({name, ModelLocation::path});
  const bool is_known = has_source_prefix(name) || find_catalog_model(name) || ModelStore(settings).find(name);
  if (!is_known && looks_like_path(name)) return Found({name, ModelLocation::path});  // opening it reports the error
  ZINC_TRY(reference, make_model_reference(settings, name));
  if (reference.source.kind == SourceKind::ollama) {
    ZINC_TRY(model, find_ollama_model(settings.ollama_stores, reference.source.name, reference.source.file));
    return Found({model.file, ModelLocation::ollama});
  }
  if (auto installed = find_installed(settings, reference)) return Found({installed->path(), ModelLocation::zinc});
  if (auto cached = find_cached(settings, reference)) return Found({*cached, ModelLocation::hugging_face});
  return Found();
}

Result<std::optional<FoundModel>> find_model_or_modified(const HubSettings& settings, const std::string& name) {
  ZINC_TRY(found, find_model(settings, name));
  if (found) return found;
  ZINC_TRY(reference, make_model_reference(settings, name));
  const ModelStore store(settings);
  for (const InstalledModel& model : store.list()) {
    const bool is_meant = model.id == reference.id || model.source == reference.source.text;
    if (is_meant && store.has_files(model)) return std::optional(FoundModel{model.path(), ModelLocation::zinc});
  }
  return std::optional<FoundModel>();
}

Result<fs::path> resolve_model(const HubSettings& settings, const std::string& name, const DownloadHooks& hooks) {
  const std::string wanted = name.empty() ? default_model_name(settings) : name;
  ZINC_TRY(found, find_model(settings, wanted));
  if (found) {
    if (settings.offline && found->location == ModelLocation::hugging_face) {
      hooks.on_message(fmt::format("offline: {} resolves to {}", sanitize_for_terminal(wanted),
                                   sanitize_for_terminal(found->path.filename().string())));
    }
    return found->path;
  }
  ZINC_TRY(reference, make_model_reference(settings, wanted));
  ZINC_TRY(pulled, pull_model(settings, reference, hooks));
  return pulled.model.path();
}

std::string default_model_name(const HubSettings& settings) {
  const std::string chosen = ModelStore(settings).default_model();
  return chosen.empty() ? std::string(kDefaultModelId) : chosen;
}

}  // namespace zinc
