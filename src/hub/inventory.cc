#include "hub/inventory.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "base/format_memory.h"
#include "base/sanitize_for_terminal.h"
#include "base/utf8.h"
#include "gguf/gguf_file.h"
#include "hub/ollama_store.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

ModelEntry entry_of(const CatalogModel& model) {
  ModelEntry entry;
  entry.id = model.id;
  entry.name = model.name;
  entry.architecture = model.architecture;
  entry.parameters = model.parameters;
  entry.quantization = model.quantization;
  entry.license = model.license;
  entry.status = status_name(model.status);
  entry.source = model.source;
  entry.file_name = model.file.name;
  entry.sha256 = model.file.sha256;
  entry.n_bytes = model.file.n_bytes;
  entry.thinks = model.thinks;
  entry.is_known = true;
  entry.released = model.released;
  return entry;
}

std::string count_text(uint64_t n) {
  if (n == 0) return "";
  return n >= 1'000'000'000 ? fmt::format("{:.1f}B", static_cast<double>(n) / 1e9)
                            : fmt::format("{}M", (n + 500'000) / 1'000'000);
}

// The manifest takes precedence over the catalog. The path is set only if the files exist.
void apply_installed(ModelEntry& entry, const InstalledModel& model, const ModelStore& store) {
  entry.id = model.id;
  entry.source = model.source;
  if (store.has_files(model)) entry.path = model.path();
  entry.location = ModelLocation::zinc;
  entry.file_name = model.files.front().name;
  entry.sha256 = model.files.size() == 1 ? model.files.front().sha256 : "";
  entry.n_bytes = model.n_bytes();
  entry.architecture = model.architecture;
  if (entry.name.empty()) entry.name = model.name;
  if (entry.parameters.empty()) entry.parameters = count_text(model.n_parameters);
  if (entry.quantization.empty()) entry.quantization = model.quantization;
}

ModelEntry external_entry(std::string id, const fs::path& path, ModelLocation location) {
  ModelEntry entry;
  std::error_code error;
  const uint64_t n_bytes = fs::file_size(path, error);
  entry.source = id;
  entry.id = std::move(id);
  entry.path = path;
  entry.location = location;
  entry.file_name = path.filename().string();
  entry.n_bytes = error ? 0 : n_bytes;
  return entry;
}

// Reads metadata from the file.
void read_metadata(ModelEntry& entry) {
  const Result<GgufFile> file = GgufFile::open(entry.path);
  if (!file.ok()) return;
  entry.n_bytes = file.value().file_bytes();
  entry.architecture = sanitize_for_terminal(file.value().get_or<std::string_view>("general.architecture", ""));
  if (entry.name.empty()) entry.name = sanitize_for_terminal(file.value().get_or<std::string_view>("general.name", ""));
  if (entry.license.empty())
    entry.license = sanitize_for_terminal(file.value().get_or<std::string_view>("general.license", ""));
  uint64_t n_parameters = 0;
  for (const GgufTensor& tensor : file.value().tensors()) {
    n_parameters += static_cast<uint64_t>(tensor.view.shape.elems());
  }
  if (entry.parameters.empty()) entry.parameters = count_text(n_parameters);
}

std::string_view location_name(ModelLocation location) {
  switch (location) {
    case ModelLocation::zinc:
      return "zinc";
    case ModelLocation::hugging_face:
      return "huggingface";
    case ModelLocation::ollama:
      return "ollama";
    case ModelLocation::path:
      break;
  }
  return "file";
}

json::value text_or_null(std::string_view text) {
  return text.empty() ? json::value() : json::value(json::string(replace_invalid_utf8(text)));
}
json::value number_or_null(uint64_t number) {
  return number == 0 ? json::value() : json::value(static_cast<int64_t>(number));
}

// The backends on which our tests run this file.
json::array tested_on(const ModelEntry& entry) {
  return entry.status == status_name(CatalogStatus::supported) ? json::array{"cpu"} : json::array();
}

// The web page of the model, and the URL of its file.
std::pair<std::string, std::string> addresses_of(const ModelEntry& entry, const HubSettings& settings) {
  if (!has_source_prefix(entry.source)) return {};
  const Result<Source> source = parse_source(entry.source);
  if (!source.ok()) return {};
  if (source.value().kind == SourceKind::url) return {"", source.value().name};
  if (source.value().kind != SourceKind::hugging_face) return {};
  return {fmt::format("{}/{}", settings.hf_endpoint, source.value().name),
          source.value().file.ends_with(".gguf") ? hf_file_url(source.value(), settings, source.value().file) : ""};
}

// Billions of parameters that a token uses: 3 for "30B-A3B", 4 for "E4B"; 0: unknown.
double active_billions(std::string_view parameters) {
  const size_t at = parameters.find_last_of("AE");
  const std::string_view text = at == parameters.npos ? parameters : parameters.substr(at + 1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size()) return 0;
  return *end == 'M' ? number / 1000 : number;
}

// Fits, leaves room for other programs, and is fast enough to read along.
bool is_comfortable(const ModelEntry& entry, const MemoryCapacity& memory) {
  constexpr double kMaxBillionsOnCpu = 4.5;  // 8 tok/s at Q4 and 20 GB/s
  if (entry.fit != Fit::fits) return false;
  const double billions = active_billions(entry.parameters);
  return memory.is_gpu || (entry.memory_bytes <= memory.n_bytes / 2 && billions > 0 && billions <= kMaxBillionsOnCpu);
}

}  // namespace

void set_fit(ModelEntry& entry, const MemoryCapacity& memory) {
  const bool is_measured = !entry.path.empty() && memory.measure;
  const Result<MemoryNeed> measured =
      is_measured ? memory.measure(entry.path) : fail(ErrorCode::not_found, "only its size is known");
  const MemoryNeed need = measured.ok() ? measured.value() : estimated_need(entry.n_bytes);
  entry.memory_is_exact = measured.ok();
  entry.memory_bytes = need.bytes;
  entry.fit = is_measured && !measured.ok() ? Fit::unknown : judge_fit(need, memory);  // it cannot run here
  if (memory.is_gpu && entry.fit != Fit::unknown) entry.fits_gpu = entry.fit == Fit::fits;
}

void mark_recommended(std::vector<ModelEntry>& entries, const MemoryCapacity& memory) {
  std::vector<ModelEntry*> candidates;
  for (ModelEntry& entry : entries) {
    if (entry.is_known && is_comfortable(entry, memory)) candidates.push_back(&entry);
  }
  std::ranges::sort(candidates, [](const ModelEntry* a, const ModelEntry* b) {
    return std::tie(a->released, a->memory_bytes) > std::tie(b->released, b->memory_bytes);
  });
  constexpr size_t kMaxRecommended = 3;
  std::set<std::string_view> families;
  for (ModelEntry* entry : candidates) {
    if (families.size() == kMaxRecommended) break;
    entry->is_recommended = families.insert(entry->architecture).second;
  }
}

std::vector<ModelEntry> list_models(const HubSettings& settings, const MemoryCapacity& memory) {
  std::vector<ModelEntry> entries;
  for (const CatalogModel& model : catalog_models()) entries.push_back(entry_of(model));
  const ModelStore store(settings);
  for (const InstalledModel& model : store.list()) {
    auto known = std::ranges::find(entries, model.id, &ModelEntry::id);
    if (known == entries.end()) known = entries.emplace(entries.end());
    apply_installed(*known, model, store);
  }
  if (!settings.hf_cache.empty()) {
    for (const auto& [id, path] : list_hf_cache(settings.hf_cache)) {
      entries.push_back(external_entry(id, path, ModelLocation::hugging_face));
    }
  }
  for (const OllamaModel& model : list_ollama_models(settings.ollama_stores)) {
    entries.push_back(
        external_entry(fmt::format("ollama:{}:{}", model.name, model.tag), model.file, ModelLocation::ollama));
  }
  const std::string chosen = default_model_name(settings);
  for (ModelEntry& entry : entries) {
    entry.is_default = entry.id == chosen;
    set_fit(entry, memory);
  }
  mark_recommended(entries, memory);
  std::ranges::sort(entries, {}, &ModelEntry::id);
  return entries;
}

Result<ModelEntry> show_model(const HubSettings& settings, const std::string& typed, const MemoryCapacity& memory) {
  const std::string name = full_model_name(settings, typed);
  ZINC_TRY(found, find_model(settings, name));
  ModelEntry entry;
  MemoryCapacity without_files = memory;
  without_files.measure = nullptr;
  for (ModelEntry& known : list_models(settings, without_files)) {
    const CatalogModel* catalog = find_catalog_model(name);
    if (known.id == (catalog ? catalog->id : std::string_view(name))) entry = std::move(known);
  }
  if (entry.id.empty()) {
    const Result<Source> source =
        has_source_prefix(name) ? parse_source(name) : fail(ErrorCode::not_found, "no source");
    entry.source = source.ok() ? source.value().text : "";
    entry.id = source.ok() ? entry.source : name;
  }
  if (found) {
    entry.path = found->path;
    entry.location = found->location;
    entry.file_name = found->path.filename().string();
    if (found->location == ModelLocation::path) {
      ZINC_TRY(file, GgufFile::open(found->path));  // a file named by path must be valid
    }
    read_metadata(entry);
  }
  entry.is_default = entry.id == default_model_name(settings);
  set_fit(entry, memory);
  return entry;
}

json::object entry_json(const ModelEntry& entry, const HubSettings& settings) {
  const auto [homepage, address] = addresses_of(entry, settings);
  return {{"id", replace_invalid_utf8(entry.id)},
          {"name", text_or_null(entry.name)},
          {"architecture", text_or_null(entry.architecture)},
          {"parameters", text_or_null(entry.parameters)},
          {"quantization", text_or_null(entry.quantization)},
          {"license", text_or_null(entry.license)},
          {"status", text_or_null(entry.status)},
          {"release_date", text_or_null(entry.released)},
          {"thinks", entry.thinks},
          {"recommended_for_chat", entry.is_known ? json::value(entry.is_recommended) : json::value()},
          {"tested_profiles", tested_on(entry)},
          {"source", text_or_null(entry.source)},
          {"homepage_url", text_or_null(homepage)},
          {"download_url", text_or_null(address)},
          {"file_name", text_or_null(entry.file_name)},
          {"sha256", text_or_null(entry.sha256)},
          {"size_bytes", number_or_null(entry.n_bytes)},
          {"size_human", entry.n_bytes == 0 ? json::value() : json::value(json::string(human_bytes(entry.n_bytes)))},
          {"memory_bytes", number_or_null(entry.memory_bytes)},
          {"memory_is_exact", entry.memory_is_exact},
          {"default_context_length", kCatalogContext},
          {"fit", fit_name(entry.fit)},
          {"fits_gpu", entry.fits_gpu ? json::value(*entry.fits_gpu) : json::value()},
          {"installed", !entry.path.empty()},
          {"location", entry.path.empty() ? json::value() : json::value(json::string(location_name(entry.location)))},
          {"path", text_or_null(entry.path.string())},
          {"default", entry.is_default}};
}

std::string human_bytes(uint64_t n_bytes) { return n_bytes == 0 ? "?" : format_memory(n_bytes); }

}  // namespace zinc
