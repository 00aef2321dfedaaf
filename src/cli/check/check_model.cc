#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cli/check/check_report.h"
#include "cli/shell_word.h"
#include "engine/engine_memory.h"
#include "gguf/gguf_file.h"
#include "graph/cost.h"
#include "hub/inventory.h"
#include "model/model.h"

namespace zinc {
namespace {

constexpr const char* kSection = "model";

// Bytes that one more position takes.
uint64_t bytes_per_token(const Model& model, const Format& kv_format) {
  uint64_t n = 0;
  for (const PageGroup& group : page_groups(model.caches))
    n += page_bytes(group, model.caches, kv_format) / kPageTokens;
  return n;
}

bool is_slow(const GgufTensor& tensor, const BackendInfo& backend) {
  return tensor.view.shape.n_dims() >= 2 && backend.is_fast_format && !backend.is_fast_format(*tensor.view.format);
}

// What the weights take on the backend's device.
size_t weight_bytes(const GgufFile& file, const BackendInfo& backend) {
  size_t n = file.file_bytes();
  for (const GgufTensor& tensor : file.tensors()) {
    const size_t decoded = static_cast<size_t>(tensor.view.shape.elems() * backend.decoded_bits / 8);
    if (is_slow(tensor, backend) && decoded > tensor.view.bytes.size()) n += decoded - tensor.view.bytes.size();
  }
  return n;
}

// What a chat of `context` positions takes (0: as many as fit), by the engine's own arithmetic.
Result<EngineMemory> chat_memory(const Model& model, const GgufFile& file, const BackendInfo& backend, size_t limit,
                                 int64_t context) {
  const EngineOptions options{.max_sequences = 1,
                              .context = static_cast<int>(std::min(context, model.config.max_context)),
                              .step_tokens = backend.step_tokens,
                              .queue_limit = 1};
  return plan_engine_memory(model, *find_format(backend.default_kv_format), weight_bytes(file, backend), limit,
                            options);
}

void check_fit(CheckReport& report, const GgufFile& file, const Model& model, const BackendInfo& backend,
               const std::string& name, int64_t context) {
  constexpr size_t kAnything = size_t{1} << 60;
  const DeviceInfo& device = report.device;
  const size_t n_free = available_bytes(device), n_all = device.memory_bytes;
  const Result<EngineMemory> need = chat_memory(model, file, backend, kAnything, context);
  if (!need.ok()) return report.add({CheckStatus::fail, kSection, "memory", need.error().message});
  const int64_t trained = model.config.max_context;
  const Result<EngineMemory> most = chat_memory(model, file, backend, n_free, 0);
  const int64_t largest = most.ok() ? most.value().cache.context : 0;
  const bool fits = chat_memory(model, file, backend, n_free, context).ok();
  const bool fits_empty = chat_memory(model, file, backend, n_all, context).ok();
  const EngineMemory& memory = need.value();
  report.model["context"] = std::min(context, trained);
  report.model["weight_bytes"] = memory.weight_bytes;
  report.model["cache_bytes"] = memory.cache.n_bytes;
  report.model["working_bytes"] = memory.step_bytes;
  report.model["memory_limit_bytes"] = n_free;
  report.model["fit"] = fit_name(fits ? Fit::fits : fits_empty || largest > 0 ? Fit::tight : Fit::too_large);
  report.model["largest_context"] = largest;
  const std::string where = device.has_own_memory ? " on " + device.name : "";
  const std::string numbers =
      fmt::format("{}: {} of weights, {} for {} positions, {} to compute with", human_bytes(memory.bytes()),
                  human_bytes(memory.weight_bytes), human_bytes(memory.cache.n_bytes), std::min(context, trained),
                  human_bytes(memory.step_bytes));
  const std::string free = human_bytes(n_free);
  if (fits) {
    report.add({CheckStatus::ok, kSection, "memory", fmt::format("{}; {} is free{}", numbers, free, where)});
  } else if (largest > 0) {
    report.add({CheckStatus::warn, kSection, "memory",
                fmt::format("{}; {} is free{}, half of what the model leaves is for positions", numbers, free, where),
                fmt::format("zinc chat {} -c {}", shell_word(name), largest)});
  } else {
    report.add({CheckStatus::fail, kSection, "memory",
                fmt::format("{}; there is {}{}, {} of it free", numbers, human_bytes(n_all), where, free),
                "zinc list   # shows smaller models under FIT"});
  }
  report.add({CheckStatus::ok, kSection, "context",
              fmt::format("{} for each position; trained for {}, {} fit now",
                          human_bytes(report.model.at("cache_bytes_per_token").as_uint64()), trained, largest)});
}

// Formats of weights that the backend computes with, but not with kernels of their own.
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
      backend.decoded_bits > 0 ? fmt::format(" and are kept in {} bits each", backend.decoded_bits) : "";
  report.add({CheckStatus::warn, kSection, "formats",
              fmt::format("{} weights have no fast kernels on {}{}: answers will be slow", text, backend.name, kept),
              "zinc list   # shows models in other formats, such as Q4_K_M"});
}

void check_speed(CheckReport& report, const Model& model) {
  const GraphCost cost = cost_graph(model.graph, {.n_tokens = 1, .n_seqs = 1, .depth = 0}, {});
  const double n_read = cost.total.memory_only_bytes();
  report.model["bytes_read_per_token"] = n_read;
  const double limit = n_read > 0 ? report.read_bytes_per_s / n_read : 0;
  report.model["tokens_per_s_limit"] = limit;
  const std::string speed = limit > 0 ? fmt::format(": at most {:.1f} tok/s here", limit) : "";
  report.add({CheckStatus::ok, kSection, "speed",
              fmt::format("a token reads {} of the {} of weights{}", human_bytes(static_cast<uint64_t>(n_read)),
                          human_bytes(report.model.at("weight_bytes").as_uint64()), speed)});
}

// A name that means a model which is not here, or nothing at all.
CheckLine missing_line(const HubSettings& settings, const std::string& name, bool is_wanted) {
  const CheckStatus status = is_wanted ? CheckStatus::fail : CheckStatus::warn;
  const Result<ModelReference> known = refer_to_model(settings, name);
  if (known.ok()) {
    return {status, kSection, "file", fmt::format("{} is not on this machine", name),
            fmt::format("zinc pull {}", shell_word(name))};
  }
  return {status, kSection, "file", known.error().message, "zinc list   # shows the names there are"};
}

// What helps against a file that is no model: another copy, where we know from where.
std::string refetch_hint(const FoundModel& found, const std::string& name) {
  if (found.place != ModelPlace::zinc) return "";
  return fmt::format("zinc rm {0} && zinc pull {0}", shell_word(name));
}

}  // namespace

void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options,
                 const BackendInfo& backend) {
  const std::string name = options.model.empty() ? default_model_name(settings) : options.model;
  const Result<std::optional<FoundModel>> found = find_model_or_touched(settings, name);
  if (!found.ok() || !found.value()) return report.add(missing_line(settings, name, !options.model.empty()));
  const Result<GgufFile> file = GgufFile::open(found.value()->path);
  const Result<Model> model = file.ok() ? read_model(file.value()) : Result<Model>(file.error());
  if (!model.ok()) {
    return report.add({CheckStatus::fail, kSection, "file", model.error().message, refetch_hint(*found.value(), name)});
  }
  const Format& kv_format = *find_format(backend.default_kv_format);
  const std::string path = found.value()->path.string();
  report.model = {{"name", name},
                  {"path", path},
                  {"architecture", model.value().architecture->gguf_name},
                  {"trained_context", model.value().config.max_context},
                  {"cache_bytes_per_token", bytes_per_token(model.value(), kv_format)},
                  {"slow_formats", json::array()}};
  report.add({CheckStatus::ok, kSection, "file",
              fmt::format("{}{}: {}", name == path ? "" : name + ", ", path, model.value().architecture->gguf_name)});
  check_fit(report, file.value(), model.value(), backend, name, options.context);
  if (report.model.contains("weight_bytes")) {
    check_formats(report, file.value(), backend);
    check_speed(report, model.value());
  } else {
    report.model.clear();
  }
}

}  // namespace zinc
