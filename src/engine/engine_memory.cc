#include "engine/engine_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/format_memory.h"
#include "base/pluralize.h"
#include "engine/placement.h"
#include "graph/rope.h"

namespace zinc {
namespace {

constexpr int kMaxDraftRows = 56;         // of a step: larger batches use the device well without drafts
constexpr int kDefaultWholeContexts = 4;  // requests of full context length that must fit at the same time

// With more sequences that draft at the same time, drafts are shorter.
int max_draft_slots(const EngineOptions& options) {
  constexpr int kDraftingSequences = 2;
  if (options.speculation.mode == SpeculationMode::off) return 0;
  return kMaxDraftTokens * std::min(options.max_sequences, kDraftingSequences);
}

int min_draft_slots(const EngineOptions& options) {
  constexpr int kMinDraftSlots = 3;  // enough for prompt lookup; an MTP block or a draft model has all of them
  const bool is_automatic = options.speculation.mode == SpeculationMode::automatic;
  return is_automatic ? kMinDraftSlots : max_draft_slots(options);
}

CacheRequirements requirements_of(const ModelInstance& model, size_t unused, const EngineOptions& options) {
  constexpr int64_t kMaxPositions = std::numeric_limits<int>::max() / 2;
  const int64_t context = options.context > 0 ? options.context : model.model().config.max_context;
  CacheRequirements requirements{
      .max_sequences = options.max_sequences,
      .context = static_cast<int>(std::clamp<int64_t>(context, 1, kMaxPositions)),
      .longest_context = static_cast<int>(std::min<int64_t>(longest_context(model.model()), kMaxPositions)),
      .may_shrink_context = options.context == 0,
      .n_full_contexts = 1,
      .max_chunk_tokens = options.step_tokens,
      .checkpoint_interval = options.checkpoint_interval,
      .min_draft_slots = min_draft_slots(options),
      .max_draft_slots = max_draft_slots(options),
      .max_bytes = options.cache_bytes > 0 ? options.cache_bytes : unused / 2};
  if (options.context == 0) requirements.n_full_contexts = std::min(kDefaultWholeContexts, options.max_sequences);
  if (options.cache_bytes == 0) {
    requirements.max_tokens = static_cast<size_t>(requirements.context) * static_cast<size_t>(options.max_sequences);
  }
  return requirements;
}

struct Models {
  const ModelInstance& model;
  const ModelInstance* draft_model;  // nullptr: none
};

// Of each device of the target. The draft model is on the last one.
Result<std::vector<ModelMemory>> measure(const Models& models, const CacheSizes& sizes, const CacheSizes& draft_sizes,
                                         const EngineOptions& options) {
  const Graph& graph = models.model.model().graph;
  const Bucket mtp_step = with_rope_scalings(largest_draft_step(options), graph, sizes.max_length);
  ZINC_TRY(devices,
           measure_devices(models.model, sizes, with_rope_scalings(largest_step(options), graph, sizes.max_length),
                           models.model.model().draft ? &mtp_step : nullptr));
  if (models.draft_model) {
    const Bucket draft_step =
        with_rope_scalings(largest_draft_step(options), models.draft_model->model().graph, draft_sizes.max_length);
    ZINC_TRY(draft, measure_memory(*models.draft_model, draft_sizes, draft_step));
    ModelMemory& last = devices.back();
    last.weight_bytes += draft.weight_bytes;
    last.upload_bytes = std::max(last.upload_bytes, draft.upload_bytes);
    last.cache_bytes += draft.cache_bytes;
    last.plan_bytes += draft.plan_bytes;
  }
  return devices;
}

// The layers of both models: their caches are planned together, so that both have pages for the same positions.
std::vector<LayerCache> all_layers(const Models& models) {
  std::vector<LayerCache> layers = models.model.model().caches;
  if (models.draft_model) {
    const std::vector<LayerCache>& draft = models.draft_model->model().caches;
    layers.insert(layers.end(), draft.begin(), draft.end());
  }
  return layers;
}

// The part of one of the models in the sizes for `layers`, those of both.
CacheSizes sizes_of(const ModelInstance& model, const CacheSizes& all, std::span<const LayerCache> layers) {
  CacheSizes sizes = all;
  sizes.n_pages.clear();
  const std::vector<PageGroup> groups = page_groups(layers);
  for (const PageGroup& own : page_groups(model.model().caches)) {
    const auto found = std::ranges::find(groups, own.window, &PageGroup::window);
    sizes.n_pages.push_back(all.n_pages[static_cast<size_t>(found - groups.begin())]);
  }
  return sizes;
}

// The memory with a cache of one page per group: what is needed besides the cache, at least.
Result<std::vector<ModelMemory>> measure_without_cache(const Models& models, const Format& kv_format,
                                                       const EngineOptions& options) {
  const auto least_sizes = [&](const ModelInstance& model) {
    CacheSizes sizes{.n_pages = {}, .n_slots = 1, .kv_format = &kv_format};
    sizes.n_pages.assign(page_groups(model.model().caches).size(), 1);
    return sizes;
  };
  return measure(models, least_sizes(models.model),
                 models.draft_model ? least_sizes(*models.draft_model) : CacheSizes{}, options);
}

Error cache_bytes_error(const ModelMemory& memory, size_t limit, const EngineOptions& options) {
  const size_t used = memory.weight_bytes + memory.plan_bytes;
  return fail(ErrorCode::out_of_memory,
              "a cache of {} (--cache-bytes) does not fit in memory: the model and its activations use {} of {}, which "
              "leaves {}",
              format_memory(options.cache_bytes), format_memory(used), format_memory(limit),
              format_memory(limit > used ? limit - used : 0));
}

// The bytes of a whole cache whose parts fit what the devices have unused, if they are in the proportions of `memory`:
// that of the devices, and maybe of their host, whose cache has `cache_bytes`.
size_t largest_cache(size_t cache_bytes, std::span<const ModelMemory> memory, std::span<const size_t> used,
                     const MemoryLimits& limits) {
  const double total = static_cast<double>(cache_bytes);
  double largest = static_cast<double>(std::numeric_limits<int64_t>::max());
  for (size_t d = 0; d < memory.size(); ++d) {
    if (memory[d].cache_bytes == 0) continue;
    const double unused = static_cast<double>(limits[d] > used[d] ? limits[d] - used[d] : 0);
    largest =
        std::min(largest, memory.size() == 1 ? unused : unused * total / static_cast<double>(memory[d].cache_bytes));
  }
  return static_cast<size_t>(largest);
}

// The first device whose limit is too small.
std::optional<size_t> too_small(std::span<const ModelMemory> memory, const MemoryLimits& limits) {
  for (size_t d = 0; d < memory.size(); ++d) {
    if (memory[d].bytes() > limits[d]) return d;
  }
  return std::nullopt;
}

// The workspaces grow with the cache, so the cache shrinks until all fits.
Result<EngineMemory> plan_memory_with(const Models& models, const Format& kv_format, const MemoryLimits& device_limits,
                                      const EngineOptions& options) {
  constexpr int kMaxRounds = 8;
  const std::vector<LayerCache> layers = all_layers(models);
  const MemoryLimits limits = with_shared_host(models.model, device_limits);
  ZINC_TRY(least, measure_without_cache(models, kv_format, options));
  EngineMemory out;
  out.devices = least;
  std::vector<ModelMemory> memory = with_shared_host(models.model, least);
  std::vector<size_t> used;
  for (const ModelMemory& part : memory) used.push_back(part.weight_bytes + part.plan_bytes);
  for (int round = 0; round < kMaxRounds; ++round) {
    const size_t unused = largest_cache(sum_of(out.devices).cache_bytes, memory, used, limits);
    if (options.cache_bytes > unused) {
      return cache_bytes_error(sum_of(out.devices), device_limits.sum(least.size()), options);
    }
    ZINC_TRY(plan, plan_cache(layers, kv_format, requirements_of(models.model, unused, options)));
    if (models.draft_model) {
      out.draft_cache = sizes_of(*models.draft_model, plan.sizes, layers);
      out.draft_cache.n_slots = options.max_sequences;
    }
    plan.sizes = sizes_of(models.model, plan.sizes, layers);
    ZINC_TRY(devices, measure(models, plan.sizes, out.draft_cache, options));
    static_cast<ModelMemory&>(out) = sum_of(devices);
    out.devices = std::move(devices);
    out.cache = std::move(plan);
    memory = with_shared_host(models.model, out.devices);
    if (!too_small(memory, limits)) return out;
    for (size_t d = 0; d < used.size(); ++d) {
      if (memory[d].bytes() > limits[d]) used[d] += memory[d].bytes() - limits[d];
    }
  }
  const size_t d = *too_small(memory, limits);
  return fail(ErrorCode::out_of_memory, "{} do not fit in {}", memory_text(memory[d]), format_memory(limits[d]));
}

// Other settings with which the same model fits: "--kv q8_0, --parallel 4".
std::string fitting_settings(const Models& models, const MemoryLimits& limits, const EngineOptions& options) {
  const ModelInstance& model = models.model;
  std::string fitting;
  const auto add = [&](std::string_view setting) { fitting += (fitting.empty() ? "" : ", ") + std::string(setting); };
  for (const std::string_view name : model.backend_info().kv_formats) {
    const Format &smaller = *find_format(name), &used = model.kv_format();
    const bool is_smaller = smaller.block_bytes * used.block_elems < used.block_bytes * smaller.block_elems;
    if (!is_smaller || !plan_memory_with(models, smaller, limits, options).ok()) continue;
    add(fmt::format("--kv {}", name));
    break;
  }
  EngineOptions fewer = options;
  while (fewer.max_sequences > 1) {
    fewer.max_sequences /= 2;
    if (!plan_memory_with(models, model.kv_format(), limits, fewer).ok()) continue;
    add(fmt::format("--parallel {}", fewer.max_sequences));
    break;
  }
  if (models.draft_model && plan_memory_with({model, nullptr}, model.kv_format(), limits, options).ok()) {
    add("--speculate off");
  }
  return fitting;
}

// The largest file of this model that could fit, for a context of a few hundred tokens.
std::string smaller_model_hint(const ModelMemory& least, size_t limit) {
  if (least.plan_bytes >= limit) return "use a smaller model";
  return fmt::format("use a smaller model or a smaller quantization, with less than {} of weights",
                     format_memory(limit - least.plan_bytes));
}

// The device that has the least memory left, or lacks the most.
size_t tightest(std::span<const ModelMemory> memory, const MemoryLimits& limits) {
  const auto unused = [&](size_t d) {
    return static_cast<int64_t>(limits[d]) - static_cast<int64_t>(memory[d].weight_bytes + memory[d].plan_bytes);
  };
  size_t tightest = 0;
  for (size_t d = 1; d < memory.size(); ++d) tightest = unused(d) < unused(tightest) ? d : tightest;
  return tightest;
}

// The devices in the memory of one host, for each host that has several.
std::vector<std::vector<size_t>> devices_in_host_memory(const ModelInstance& model) {
  std::map<std::string_view, std::vector<size_t>> by_host;
  for (size_t d = 0; d < model.devices().size(); ++d) {
    const ModelDevice& device = model.devices()[d];
    if (!device.device.has_dedicated_memory) by_host[device.host].push_back(d);
  }
  std::vector<std::vector<size_t>> sharing;
  for (auto& [host, devices] : by_host) {
    if (devices.size() > 1) sharing.push_back(std::move(devices));
  }
  return sharing;
}

}  // namespace

std::vector<ModelMemory> with_shared_host(const ModelInstance& model, std::span<const ModelMemory> devices) {
  std::vector<ModelMemory> all(devices.begin(), devices.end());
  for (const std::vector<size_t>& of_host : devices_in_host_memory(model)) {
    std::vector<ModelMemory> sharing;
    for (const size_t d : of_host) sharing.push_back(devices[d]);
    all.push_back(sum_of(sharing));
    all.back().upload_bytes = std::ranges::max(sharing, {}, &ModelMemory::upload_bytes).upload_bytes;  // one by one
  }
  return all;
}

MemoryLimits with_shared_host(const ModelInstance& model, const MemoryLimits& limits) {
  std::vector<size_t> all;
  for (size_t d = 0; d < model.devices().size(); ++d) all.push_back(limits[d]);
  for (const std::vector<size_t>& sharing : devices_in_host_memory(model)) {
    size_t of_host = 0;
    for (const size_t d : sharing) of_host = std::max(of_host, limits[d]);
    all.push_back(of_host);
  }
  return all;
}

std::string shared_host_text(const ModelInstance& model, size_t host) {
  std::string names;
  const std::vector<std::vector<size_t>> sharing = devices_in_host_memory(model);
  for (const size_t d : sharing[host]) {
    names += (names.empty() ? "" : " and ") + model.devices()[d].name;
  }
  return names + ", which share the host's memory";
}

Bucket largest_step(const EngineOptions& options) {
  const bool has_drafts = options.speculation.mode != SpeculationMode::off;
  const int n_draft_rows = has_drafts ? std::min(kMaxDraftTokens * options.max_sequences, kMaxDraftRows) : 0;
  return {.max_tokens = options.max_sequences + std::max(options.step_tokens, n_draft_rows),
          .max_seqs = options.max_sequences,
          .max_outputs = options.max_sequences + n_draft_rows};
}

size_t least_limit(const ModelMemory& memory) {
  return std::max(memory.bytes(), memory.weight_bytes + memory.plan_bytes + 2 * memory.cache_bytes);
}

Bucket largest_draft_step(const EngineOptions& options) {
  return {.max_tokens = options.max_sequences + options.step_tokens,
          .max_seqs = options.max_sequences,
          .max_outputs = options.max_sequences};
}

Bucket with_rope_scalings(Bucket step, const Graph& graph, int context) {
  step.n_rope_scalings = static_cast<int>(rope_contexts(graph, context).size());
  return step;
}

Result<EngineMemory> plan_engine_memory(const ModelInstance& model, const MemoryLimits& device_limits,
                                        const EngineOptions& options, const ModelInstance* draft_model) {
  const Models models{model, draft_model};
  Result<EngineMemory> planned = plan_memory_with(models, model.kv_format(), device_limits, options);
  if (planned.ok() || planned.error().code != ErrorCode::out_of_memory) return planned;
  ZINC_TRY(least_of_devices, measure_without_cache(models, model.kv_format(), options));
  const std::vector<ModelMemory> least = with_shared_host(model, least_of_devices);
  const MemoryLimits limits = with_shared_host(model, device_limits);
  const size_t d = tightest(least, limits);
  const std::string where = d < model.devices().size() ? model.devices()[d].memory_text() : "";
  const std::string model_text = fmt::format("{} {} of weights and {} of activations and workspaces, of {} available{}",
                                             draft_model ? "the model and its draft model take" : "the model takes",
                                             format_memory(least[d].weight_bytes), format_memory(least[d].plan_bytes),
                                             format_memory(limits[d]), where);
  std::string remedy;
  EngineOptions any_context = options;
  any_context.context = 0;
  if (const std::string settings = fitting_settings(models, device_limits, options); !settings.empty()) {
    remedy = "; it fits with: " + settings;
  } else if (options.cache_bytes == 0 &&
             !plan_memory_with(models, model.kv_format(), device_limits, any_context).ok()) {
    remedy = "; " + smaller_model_hint(least[d], limits[d]);
  }
  return fail(ErrorCode::out_of_memory, "{}; {}{}{}", planned.error().message, model_text, remedy, split_hint(model));
}

Result<std::vector<ModelMemory>> least_engine_memory(const ModelInstance& model, const EngineOptions& options) {
  EngineOptions one = options;
  if (one.context == 0)
    one.context = static_cast<int>(std::min<int64_t>(model.model().config.max_context, kLeastContext));
  CacheRequirements requirements = requirements_of(model, std::numeric_limits<int64_t>::max(), one);
  if (options.cache_bytes == 0) requirements.max_tokens = static_cast<size_t>(one.context);
  ZINC_TRY(plan, plan_cache(model.model().caches, model.kv_format(), requirements));
  return measure({model, nullptr}, plan.sizes, {}, options);
}

}  // namespace zinc
