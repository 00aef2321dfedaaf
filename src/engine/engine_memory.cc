#include "engine/engine_memory.h"

#include <algorithm>
#include <limits>

#include "graph/memory_plan.h"

namespace zinc {
namespace {

constexpr int kDefaultWholeContexts = 4;  // requests without a limit of their own that run at once

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
  EngineMemory out{.weight_bytes = weight_bytes, .step_bytes = plan_bytes(model.graph, options), .cache = {}};
  const size_t taken = out.weight_bytes + out.step_bytes;
  const size_t left = limit > taken ? limit - taken : 0;
  if (options.cache_bytes > left) {
    return fail(ErrorCode::out_of_memory,
                "{} bytes of cache do not fit: of {} bytes of memory, model and steps take {}, which leaves {}",
                options.cache_bytes, limit, taken, left);
  }
  constexpr int64_t kMostPositions = std::numeric_limits<int>::max() / 2;
  const int64_t context = options.context > 0 ? options.context : model.config.max_context;
  CacheDemand demand{.max_sequences = options.max_sequences,
                     .context = static_cast<int>(std::clamp<int64_t>(context, 1, kMostPositions)),
                     .may_shrink_context = options.context == 0,
                     .n_whole_contexts = 1,
                     .max_run = options.step_tokens,
                     .state_interval = options.state_interval,
                     .max_bytes = options.cache_bytes > 0 ? options.cache_bytes : left / 2};
  if (options.context == 0) demand.n_whole_contexts = std::min(kDefaultWholeContexts, options.max_sequences);
  if (options.cache_bytes == 0) {
    demand.max_tokens = static_cast<size_t>(demand.context) * static_cast<size_t>(options.max_sequences);
  }
  ZINC_TRY(plan, plan_cache(model.caches, kv_format, demand));
  out.cache = std::move(plan);
  return out;
}

}  // namespace zinc
