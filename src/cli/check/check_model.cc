#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "backend/backend.h"
#include "cli/check/check_report.h"
#include "gguf/gguf_file.h"
#include "graph/cost.h"
#include "hub/inventory.h"
#include "model/model.h"

namespace zinc {
namespace {

constexpr const char* kSection = "model";

// Bytes that one more position takes.
uint64_t bytes_per_token(const Model& model) {
  uint64_t n = 0;
  for (const PageGroup& group : page_groups(model.caches)) n += page_bytes(group, model.caches, k_f16) / kPageTokens;
  return n;
}

// The most positions that fit `n_bytes`, by halving; 0: not even one.
int64_t largest_context(const GgufFile& file, int64_t trained, uint64_t n_bytes) {
  const auto fits = [&](int64_t context) {
    const Result<MemoryNeed> need = memory_need(file, context);
    return need.ok() && need.value().bytes() <= n_bytes;
  };
  int64_t low = 0, high = std::max<int64_t>(1, trained);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    fits(middle) ? low = middle : high = middle - 1;
  }
  return low;
}

void check_fit(CheckReport& report, const GgufFile& file, const Model& model, const MemoryNeed& need,
               const std::string& name, int64_t context) {
  const MachineMemory machine = this_machine();
  const Fit fit = judge_fit(need.bytes(), machine);
  const int64_t trained = model.config.max_context;
  const int64_t largest = largest_context(file, trained, machine.n_available);
  report.model["fit"] = fit_name(fit);
  report.model["largest_context"] = largest;
  const std::string numbers =
      fmt::format("{} bytes: {} weights, {} for {} positions, {} to compute with", need.bytes(), need.weight_bytes,
                  need.cache_bytes, std::min(context, trained), need.working_bytes);
  if (fit == Fit::fits) {
    report.add({CheckStatus::ok, kSection, "memory", numbers});
  } else if (largest > 0) {
    report.add({CheckStatus::warn, kSection, "memory", fmt::format("{}; {} are free", numbers, machine.n_available),
                fmt::format("zinc run {} -c {}", name, largest)});
  } else {
    report.add({CheckStatus::fail, kSection, "memory",
                fmt::format("{}; this machine has {}, {} of them free", numbers, machine.n_bytes, machine.n_available),
                "zinc list   # shows smaller models under FIT"});
  }
  report.add({CheckStatus::ok, kSection, "context",
              fmt::format("{} bytes for each position; trained for {}, {} fit now", bytes_per_token(model), trained,
                          largest)});
}

// Formats of weights that the backend computes with, but not with kernels of their own.
void check_formats(CheckReport& report, const GgufFile& file) {
  const BackendInfo& backend = default_backend();
  if (!backend.is_fast_format) return;
  std::set<std::string_view> slow;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.view.shape.n_dims() >= 2 && !backend.is_fast_format(*tensor.view.format)) {
      slow.insert(tensor.view.format->name);
    }
  }
  json::array names;
  std::string text;
  for (const std::string_view name : slow) {
    names.push_back(json::value(name));
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  report.model["slow_formats"] = std::move(names);
  if (slow.empty()) return;
  report.add({CheckStatus::warn, kSection, "formats",
              fmt::format("{} weights have no fast kernels on {}: answers will be slow", text, backend.name),
              "zinc pull the same model as Q4_K_M, Q8_0 or another format"});
}

void check_speed(CheckReport& report, const Model& model, const MemoryNeed& need) {
  const GraphCost cost = cost_graph(model.graph, {.n_tokens = 1, .n_seqs = 1, .depth = 0}, {});
  const double n_read = cost.total.memory_only_bytes();
  report.model["bytes_read_per_token"] = n_read;
  const double limit = n_read > 0 ? report.read_bytes_per_s / n_read : 0;
  report.model["tokens_per_s_limit"] = limit;
  report.add({CheckStatus::ok, kSection, "speed",
              fmt::format("a token reads {:.0f} bytes, of {} bytes of weights in memory: at most {:.1f} tok/s here",
                          n_read, need.weight_bytes, limit)});
}

}  // namespace

void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options) {
  const std::string name = options.model.empty() ? default_model_name(settings) : options.model;
  const Result<std::optional<FoundModel>> found = find_model(settings, name);
  if (!found.ok() || !found.value()) {
    const bool is_wanted = !options.model.empty();
    report.add({is_wanted ? CheckStatus::fail : CheckStatus::warn, kSection, "file",
                found.ok() ? fmt::format("{} is not on this machine", name) : found.error().message,
                fmt::format("zinc pull {}", name)});
    return;
  }
  const Result<GgufFile> file = GgufFile::open(found.value()->path);
  const Result<Model> model = file.ok() ? read_model(file.value()) : Result<Model>(file.error());
  if (!model.ok()) {
    report.add(
        {CheckStatus::fail, kSection, "file", model.error().message, fmt::format("zinc rm {0}; zinc pull {0}", name)});
    return;
  }
  const Result<MemoryNeed> need = memory_need(file.value(), options.context);
  if (!need.ok()) {
    report.add({CheckStatus::fail, kSection, "memory", need.error().message});
    return;
  }
  report.model = {{"name", name},
                  {"path", found.value()->path.string()},
                  {"architecture", model.value().architecture->gguf_name},
                  {"context", std::min<int64_t>(options.context, model.value().config.max_context)},
                  {"trained_context", model.value().config.max_context},
                  {"weight_bytes", need.value().weight_bytes},
                  {"cache_bytes", need.value().cache_bytes},
                  {"working_bytes", need.value().working_bytes},
                  {"cache_bytes_per_token", bytes_per_token(model.value())},
                  {"slow_formats", json::array()}};
  report.add({CheckStatus::ok, kSection, "file",
              fmt::format("{}: {}, {}", name, model.value().architecture->gguf_name, found.value()->path.string())});
  check_fit(report, file.value(), model.value(), need.value(), name, options.context);
  check_formats(report, file.value());
  check_speed(report, model.value(), need.value());
}

}  // namespace zinc
