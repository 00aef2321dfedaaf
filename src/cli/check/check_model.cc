#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "cli/check/check_report.h"
#include "cli/model_memory.h"
#include "cli/shell_word.h"
#include "engine/placement.h"
#include "gguf/gguf_file.h"
#include "graph/cost.h"
#include "hub/disk_space.h"
#include "hub/inventory.h"
#include "model/model.h"

namespace zinc {
namespace {

constexpr const char* kSection = "model";

// KV cache bytes per token.
uint64_t bytes_per_token(const Model& model, const Format& kv_format) {
  uint64_t n = 0;
  for (const PageGroup& group : page_groups(model.caches))
    n += page_bytes(group, model.caches, kv_format) / kPageTokens;
  return n;
}

bool is_slow(const GgufTensor& tensor, const BackendInfo& backend) {
  return tensor.view.shape.n_dims() >= 2 && backend.has_packed_kernel &&
         !backend.has_packed_kernel(*tensor.view.format);
}

// The model on the devices that are chosen for it, or that the user wants: one line per device.
void check_placement(CheckReport& report, const std::filesystem::path& path, const CheckOptions& options) {
  const EngineOptions engine{.max_sequences = 1, .context = static_cast<int>(options.context), .queue_limit = 1};
  LoadOptions load = options.load;
  load.engine = &engine;
  const auto add_failure = [&](const Error& error) {
    report.add({CheckStatus::fail, kSection, "placement", error.message,
                "zinc list   # the FIT column shows which models fit"});
    report.model["fit"] = fit_name(Fit::too_large);
  };
  const Result<ModelInstance> opened = ModelInstance::open(path, load);
  if (!opened.ok()) return add_failure(opened.error());
  const ModelInstance& model = opened.value();
  const Result<EngineMemory> memory = chat_memory(model, model.memory_limits(), options.context);
  if (!memory.ok()) return add_failure(memory.error());
  std::vector<double> read_bytes_per_s;
  json::array devices;
  for (size_t d = 0; d < model.devices().size(); ++d) {
    const ModelDevice& device = model.devices()[d];
    const ModelMemory& used = memory.value().devices[d];
    read_bytes_per_s.push_back(device.backend->measure_peaks().read_bytes_per_s);
    devices.push_back(json::object{{"device", device.name},
                                   {"first_layer", device.first_layer},
                                   {"n_layers", device.n_layers},
                                   {"n_expert_layers", device.n_expert_layers},
                                   {"weight_bytes", used.weight_bytes},
                                   {"cache_bytes", used.cache_bytes},
                                   {"working_bytes", used.plan_bytes},
                                   {"memory_limit_bytes", device.memory_limit}});
  }
  report.model["placement"] = std::move(devices);
  report.model["fit"] = fit_name(Fit::fits);
  report.model["largest_context"] = memory.value().cache.context;
  std::string table = placement_table(model, memory.value().devices, read_bytes_per_s);
  while (!table.empty()) {
    const size_t end = table.find('\n');
    report.add({CheckStatus::ok, kSection, "placement", table.substr(0, end)});
    table.erase(0, end + 1);
  }
}

void check_fit(CheckReport& report, const ModelInstance& model, const CheckOptions& options, const std::string& name) {
  const int64_t context = options.context;
  const DeviceInfo& device = report.device;
  const size_t free_bytes = available_bytes(device), total_bytes = device.memory_bytes;
  const Result<EngineMemory> required = chat_memory(model, kUnlimitedMemory, context);
  if (!required.ok()) return report.add({CheckStatus::fail, kSection, "memory", required.error().message});
  const int64_t trained = model.model().config.max_context, longest = longest_context(model.model());
  const Result<EngineMemory> largest = chat_memory(model, free_bytes, 0);
  const int64_t max_context = largest.ok() ? largest.value().cache.context : 0;
  const Result<EngineMemory> fitting = chat_memory(model, free_bytes, context);
  const bool fits = fitting.ok();
  const bool fits_when_idle = chat_memory(model, total_bytes, context).ok();
  const EngineMemory& memory = required.value();
  report.model["context"] = std::min(context, trained);
  report.model["weight_bytes"] = memory.weight_bytes;
  report.model["cache_bytes"] = memory.cache_bytes;
  report.model["working_bytes"] = memory.plan_bytes;
  report.model["memory_limit_bytes"] = free_bytes;
  report.model["fit"] = fit_name(fits ? Fit::fits : fits_when_idle || max_context > 0 ? Fit::tight : Fit::too_large);
  report.model["largest_context"] = max_context;
  const std::string on_device = device.has_dedicated_memory ? " on " + device.name : "";
  const std::string needs =
      fmt::format("{}: {} of weights, {} of KV cache for {} tokens, {} of activations and workspaces",
                  human_bytes(memory.bytes()), human_bytes(memory.weight_bytes), human_bytes(memory.cache_bytes),
                  std::min(context, trained), human_bytes(memory.plan_bytes));
  const std::string free = human_bytes(free_bytes);
  const bool is_chosen = !options.load.backend.empty() || options.load.placement != PlacementOptions{};
  if (is_chosen || (!fits && model.backend_info().devices)) return check_placement(report, model.path(), options);
  if (fits) {
    report.add({CheckStatus::ok, kSection, "memory", fmt::format("{}; {} is free{}", needs, free, on_device)});
  } else if (max_context > 0) {
    report.add(
        {CheckStatus::warn, kSection, "memory",
         fmt::format(
             "{}; {} is free{}, and the KV cache may use half of the memory that is left after loading the model",
             needs, free, on_device),
         fmt::format("zinc chat {} -c {}", shell_word(name), max_context)});
  } else {
    report.add({CheckStatus::fail, kSection, "memory",
                fmt::format("{}; total memory is {}{}, {} of it free; {}", needs, human_bytes(total_bytes), on_device,
                            free, fitting.error().message),
                "zinc list   # the FIT column shows which models fit"});
  }
  report.add({CheckStatus::ok, kSection, "context",
              fmt::format("{} of KV cache per token; trained for {} tokens{}, {} fit now",
                          human_bytes(report.model.at("cache_bytes_per_token").as_uint64()), trained,
                          longest > trained ? fmt::format(" (-c up to {} with YaRN)", longest) : "", max_context)});
}

// Weight formats without packed kernels on this backend.
void check_formats(CheckReport& report, const GgufFile& file, const BackendInfo& backend) {
  std::set<std::string_view> slow;
  for (const GgufTensor& tensor : file.tensors()) {
    if (is_slow(tensor, backend)) slow.insert(tensor.view.format->name);
  }
  json::array names;
  std::string text;
  for (const std::string_view name : slow) {
    names.push_back(json::value(name));
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  report.model["slow_formats"] = std::move(names);
  if (slow.empty()) return;
  const std::string kept =
      backend.dequantized_bits > 0 ? fmt::format(" and are dequantized to {} bits", backend.dequantized_bits) : "";
  report.add(
      {CheckStatus::warn, kSection, "formats",
       fmt::format("{} weights have no packed kernels on {}{}: generation will be slow", text, backend.name, kept),
       "zinc list   # lists models in other formats, such as Q4_K_M"});
}

void check_speed(CheckReport& report, const Model& model) {
  const GraphCost cost = cost_graph(model.graph, {.n_tokens = 1, .n_seqs = 1, .depth = 0}, {});
  const double n_read = cost.total.weight_and_cache_bytes();
  report.model["bytes_read_per_token"] = n_read;
  const double limit = n_read > 0 ? report.read_bytes_per_s / n_read : 0;
  report.model["tokens_per_s_limit"] = limit;
  const std::string speed = limit > 0 ? fmt::format(": at most {:.1f} tok/s on this machine", limit) : "";
  report.add({CheckStatus::ok, kSection, "speed",
              fmt::format("each token reads {} of the {} of weights{}", human_bytes(static_cast<uint64_t>(n_read)),
                          human_bytes(report.model.at("weight_bytes").as_uint64()), speed)});
}

// The share of a mixture of experts that each token reads: "30B-A3B" is 0.1; 1 for a dense model.
double active_share(std::string_view parameters) {
  const size_t active = parameters.find("-A");
  if (active == std::string_view::npos) return 1;
  const double n_total = std::strtod(std::string(parameters).c_str(), nullptr);
  const double n_active = std::strtod(std::string(parameters.substr(active + 2)).c_str(), nullptr);
  return n_total > 0 && n_active > 0 ? std::min(1.0, n_active / n_total) : 1;
}

void check_download(CheckReport& report, const HubSettings& settings, uint64_t n_bytes) {
  const uint64_t n_free = free_disk_bytes(settings.cache);
  if (n_free == 0) return;
  const bool fits = n_bytes < n_free;
  report.add({fits ? CheckStatus::ok : CheckStatus::fail, kSection, "disk",
              fmt::format("the download has {}; {} is free", human_bytes(n_bytes), human_bytes(n_free)),
              fits ? "" : "zinc list --installed, then zinc rm NAME"});
}

// A model that is not installed, from the figures of the catalog.
void check_catalog_model(CheckReport& report, const HubSettings& settings, const CatalogModel& model) {
  const DeviceInfo& device = report.device;
  const MemoryNeed need = estimated_need(model.file.n_bytes);
  const uint64_t n_free = available_bytes(device);
  if (model.file.n_bytes == 0) {
    return report.add({CheckStatus::skip, kSection, "memory", "its size is not known before the download"});
  }
  const Fit fit = judge_fit(need, {device.memory_bytes, n_free, device.has_dedicated_memory});
  const CheckStatus status = fit == Fit::fits    ? CheckStatus::ok
                             : fit == Fit::tight ? CheckStatus::warn
                                                 : CheckStatus::fail;
  report.add({status, kSection, "memory",
              fmt::format("about {} for {} tokens of context; {} of {} is free{}", human_bytes(need.bytes),
                          kCatalogContext, human_bytes(n_free), human_bytes(device.memory_bytes),
                          device.has_dedicated_memory ? " on " + device.name : ""),
              fit == Fit::too_large ? "zinc list   # the FIT column shows which models fit" : ""});
  check_download(report, settings, model.file.n_bytes);
  const double n_read = static_cast<double>(model.file.n_bytes) * active_share(model.parameters);
  if (report.read_bytes_per_s <= 0) return;
  report.add({CheckStatus::ok, kSection, "speed",
              fmt::format("at most about {:.1f} tok/s on this machine: each token reads about {}",
                          report.read_bytes_per_s / n_read, human_bytes(static_cast<uint64_t>(n_read)))});
}

// A model that is not installed, or a name that is not known. Not installed is not a failure: a model that is named is
// judged by the catalog's figures.
void check_missing(CheckReport& report, const HubSettings& settings, const std::string& name, bool is_named) {
  const Result<ModelReference> known = make_model_reference(settings, name);
  if (!known.ok()) {
    return report.add({is_named ? CheckStatus::fail : CheckStatus::warn, kSection, "file", known.error().message,
                       "zinc list   # shows the available names"});
  }
  report.add({is_named ? CheckStatus::skip : CheckStatus::warn, kSection, "file",
              fmt::format("{} is not installed", known.value().catalog ? known.value().id : name),
              fmt::format("zinc pull {}", shell_word(known.value().catalog ? known.value().id : name))});
  if (is_named && known.value().catalog) check_catalog_model(report, settings, *known.value().catalog);
}

// For an invalid model file: the command that downloads it again, if zinc downloaded it.
std::string refetch_hint(const FoundModel& found, const std::string& name) {
  if (found.location != ModelLocation::zinc) return "";
  return fmt::format("zinc rm {0} && zinc pull {0}", shell_word(name));
}

}  // namespace

void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options,
                 const BackendInfo& backend) {
  const std::string name = options.model.empty() ? default_model_name(settings) : options.model;
  const Result<std::optional<FoundModel>> found = find_model_or_modified(settings, name);
  if (!found.ok() || !found.value()) return check_missing(report, settings, name, !options.model.empty());
  const Result<ModelInstance> opened = ModelInstance::open(
      found.value()->path,
      {.backend = std::string(backend.name), .memory_limit = kUnlimitedMemory, .kv_format = options.load.kv_format});
  if (!opened.ok()) {
    const Result<GgufFile> file = GgufFile::open(found.value()->path);
    const bool is_valid = file.ok() && read_model(file.value()).ok();  // then the backend cannot run it
    return report.add({CheckStatus::fail, kSection, is_valid ? "backend" : "file", opened.error().message,
                       is_valid ? "" : refetch_hint(*found.value(), name)});
  }
  const ModelInstance& instance = opened.value();
  const Model& model = instance.model();
  const std::string path = found.value()->path.string();
  report.model = {{"name", name},
                  {"path", path},
                  {"architecture", model.architecture->gguf_name},
                  {"trained_context", model.config.max_context},
                  {"cache_bytes_per_token", bytes_per_token(model, instance.kv_format())},
                  {"slow_formats", json::array()}};
  report.add({CheckStatus::ok, kSection, "file",
              fmt::format("{}{}: {}", name == path ? "" : name + ", ", path, model.architecture->gguf_name)});
  check_fit(report, instance, options, name);
  if (report.model.contains("weight_bytes")) {
    check_formats(report, instance.file(), backend);
    check_speed(report, model);
  } else {
    report.model.clear();
  }
}

}  // namespace zinc
