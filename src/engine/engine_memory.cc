#include "engine/engine_memory.h"

#include <algorithm>
#include <limits>

#include "base/format_memory.h"
#include "graph/memory_plan.h"

namespace zinc {
namespace {

constexpr int kDefaultWholeContexts = 4;  // requests of full context length that must fit at the same time

size_t plan_bytes(const Graph& graph, const EngineOptions& options) {
  size_t n = 0;
  for (const int size : step_sizes(options)) {
    const Bucket bucket = bucket_of(size, options.max_sequences);
    n += plan_memory(graph, bucket.max_tokens, bucket.max_outputs, false).n_elems * sizeof(float);
  }
  return n;
}

}  // namespace

std::vector<int> step_sizes(const EngineOptions& options) {
  std::vector<int> sizes;
  for (const int size :
       {1, std::min(8, options.max_sequences), options.max_sequences, options.max_sequences + options.step_tokens}) {
    if (sizes.empty() || size > sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

Bucket bucket_of(int n_tokens, int max_sequences) {
  const int n_sequences = std::min(n_tokens, max_sequences);
  return {.max_tokens = n_tokens, .max_seqs = n_sequences, .max_outputs = n_sequences};
}

Result<EngineMemory> plan_engine_memory(const Model& model, const Format& kv_format, size_t weight_bytes, size_t limit,
                                        const EngineOptions& options) {
  EngineMemory out{.weight_bytes = weight_bytes, .activation_bytes = plan_bytes(model.graph, options), .cache = {}};
  const size_t used = out.weight_bytes + out.activation_bytes;
  const size_t unused = limit > used ? limit - used : 0;
  if (options.cache_bytes > unused) {
    return fail(
        ErrorCode::out_of_memory,
        "a cache of {} (--cache-bytes) does not fit in memory: the model and its activations use {} of {}, which "
        "leaves {}",
        format_memory(options.cache_bytes), format_memory(used), format_memory(limit), format_memory(unused));
  }
  constexpr int64_t kMaxPositions = std::numeric_limits<int>::max() / 2;
  const int64_t context = options.context > 0 ? options.context : model.config.max_context;
  CacheRequirements requirements{
      .max_sequences = options.max_sequences,
      .context = static_cast<int>(std::clamp<int64_t>(context, 1, kMaxPositions)),
      .trained_context = static_cast<int>(std::min<int64_t>(model.config.max_context, kMaxPositions)),
      .may_shrink_context = options.context == 0,
      .n_full_contexts = 1,
      .max_chunk_tokens = options.step_tokens,
      .checkpoint_interval = options.checkpoint_interval,
      .max_bytes = options.cache_bytes > 0 ? options.cache_bytes : unused / 2};
  if (options.context == 0) requirements.n_full_contexts = std::min(kDefaultWholeContexts, options.max_sequences);
  if (options.cache_bytes == 0) {
    requirements.max_tokens = static_cast<size_t>(requirements.context) * static_cast<size_t>(options.max_sequences);
  }
  ZINC_TRY(plan, plan_cache(model.caches, kv_format, requirements));
  out.cache = std::move(plan);
  return out;
}

}  // namespace zinc
