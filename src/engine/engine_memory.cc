#include "engine/engine_memory.h"

#include <algorithm>
#include <limits>

#include "base/format_memory.h"
#include "base/pluralize.h"

namespace zinc {
namespace {

constexpr int kDefaultWholeContexts = 4;  // requests of full context length that must fit at the same time

CacheRequirements requirements_of(const ModelInstance& model, size_t unused, const EngineOptions& options) {
  constexpr int64_t kMaxPositions = std::numeric_limits<int>::max() / 2;
  const int64_t context = options.context > 0 ? options.context : model.model().config.max_context;
  CacheRequirements requirements{
      .max_sequences = options.max_sequences,
      .context = static_cast<int>(std::clamp<int64_t>(context, 1, kMaxPositions)),
      .trained_context = static_cast<int>(std::min<int64_t>(model.model().config.max_context, kMaxPositions)),
      .may_shrink_context = options.context == 0,
      .n_full_contexts = 1,
      .max_chunk_tokens = options.step_tokens,
      .checkpoint_interval = options.checkpoint_interval,
      .max_bytes = options.cache_bytes > 0 ? options.cache_bytes : unused / 2};
  if (options.context == 0) requirements.n_full_contexts = std::min(kDefaultWholeContexts, options.max_sequences);
  if (options.cache_bytes == 0) {
    requirements.max_tokens = static_cast<size_t>(requirements.context) * static_cast<size_t>(options.max_sequences);
  }
  return requirements;
}

// The memory with a cache of one page per group: what is needed besides the cache, at least.
Result<ModelMemory> measure_without_cache(const ModelInstance& model, const Format& kv_format,
                                          const EngineOptions& options) {
  CacheSizes sizes{.n_pages = {}, .n_slots = 1, .kv_format = &kv_format};
  sizes.n_pages.assign(page_groups(model.model().caches).size(), 1);
  return measure_memory(model, sizes, largest_step(options));
}

Error cache_bytes_error(const ModelMemory& memory, size_t limit, const EngineOptions& options) {
  const size_t used = memory.weight_bytes + memory.plan_bytes;
  return fail(ErrorCode::out_of_memory,
              "a cache of {} (--cache-bytes) does not fit in memory: the model and its activations use {} of {}, which "
              "leaves {}",
              format_memory(options.cache_bytes), format_memory(used), format_memory(limit),
              format_memory(limit > used ? limit - used : 0));
}

// The workspaces grow with the cache, so the cache shrinks until all fits.
Result<EngineMemory> plan_memory_with(const ModelInstance& model, const Format& kv_format, size_t limit,
                                      const EngineOptions& options) {
  constexpr int kMaxRounds = 8;
  ZINC_TRY(least, measure_without_cache(model, kv_format, options));
  size_t used = least.weight_bytes + least.plan_bytes;
  EngineMemory out;
  for (int round = 0; round < kMaxRounds; ++round) {
    const size_t unused = limit > used ? limit - used : 0;
    if (options.cache_bytes > unused) return cache_bytes_error(round == 0 ? least : out, limit, options);
    ZINC_TRY(plan, plan_cache(model.model().caches, kv_format, requirements_of(model, unused, options)));
    ZINC_TRY(memory, measure_memory(model, plan.sizes, largest_step(options)));
    static_cast<ModelMemory&>(out) = memory;
    out.cache = std::move(plan);
    if (out.bytes() <= limit) return out;
    used += out.bytes() - limit;
  }
  return fail(ErrorCode::out_of_memory, "{} do not fit in {}", memory_text(out), format_memory(limit));
}

// Other settings with which the same model fits: "--kv q8_0, --parallel 4".
std::string fitting_settings(const ModelInstance& model, size_t limit, const EngineOptions& options) {
  std::string fitting;
  const auto add = [&](std::string_view setting) { fitting += (fitting.empty() ? "" : ", ") + std::string(setting); };
  for (const std::string_view name : model.backend_info().kv_formats) {
    const Format &smaller = *find_format(name), &used = model.kv_format();
    const bool is_smaller = smaller.block_bytes * used.block_elems < used.block_bytes * smaller.block_elems;
    if (!is_smaller || !plan_memory_with(model, smaller, limit, options).ok()) continue;
    add(fmt::format("--kv {}", name));
    break;
  }
  EngineOptions fewer = options;
  while (fewer.max_sequences > 1) {
    fewer.max_sequences /= 2;
    if (!plan_memory_with(model, model.kv_format(), limit, fewer).ok()) continue;
    add(fmt::format("--parallel {}", fewer.max_sequences));
    break;
  }
  return fitting;
}

// The largest file of this model that could fit, for a context of a few hundred tokens.
std::string smaller_model_hint(const ModelMemory& least, size_t limit) {
  if (least.plan_bytes >= limit) return "use a smaller model";
  return fmt::format("use a smaller model or a smaller quantization, with less than {} of weights",
                     format_memory(limit - least.plan_bytes));
}

}  // namespace

Bucket largest_step(const EngineOptions& options) {
  return {.max_tokens = options.max_sequences + options.step_tokens,
          .max_seqs = options.max_sequences,
          .max_outputs = options.max_sequences};
}

size_t least_limit(const ModelMemory& memory) {
  return std::max(memory.bytes(), memory.weight_bytes + memory.plan_bytes + 2 * memory.cache_bytes);
}

Result<EngineMemory> plan_engine_memory(const ModelInstance& model, size_t limit, const EngineOptions& options) {
  Result<EngineMemory> planned = plan_memory_with(model, model.kv_format(), limit, options);
  if (planned.ok() || planned.error().code != ErrorCode::out_of_memory) return planned;
  ZINC_TRY(least, measure_without_cache(model, model.kv_format(), options));
  const std::string model_text = fmt::format(
      "the model takes {} of weights and {} of activations and workspaces, of {} available{}",
      format_memory(least.weight_bytes), format_memory(least.plan_bytes), format_memory(limit), model.device_text());
  std::string remedy;
  EngineOptions any_context = options;
  any_context.context = 0;
  if (const std::string settings = fitting_settings(model, limit, options); !settings.empty()) {
    remedy = "; it fits with: " + settings;
  } else if (options.cache_bytes == 0 && !plan_memory_with(model, model.kv_format(), limit, any_context).ok()) {
    remedy = "; " + smaller_model_hint(least, limit);
  }
  return fail(ErrorCode::out_of_memory, "{}; {}{}", planned.error().message, model_text, remedy);
}

}  // namespace zinc
