#include "hub/fit.h"

#include <algorithm>

#include "base/memory_info.h"
#include "graph/cost.h"
#include "graph/memory_plan.h"
#include "model/model.h"

namespace zinc {
namespace {

constexpr int kStepTokens = 512;  // of a prompt, fed at once
constexpr uint64_t kSpareBytes = uint64_t{256} << 20;

uint64_t cache_bytes(const Model& model, int64_t context) {
  uint64_t n_bytes = state_bytes(model.caches);
  for (const PageGroup& group : page_groups(model.caches)) {
    const int64_t n_cached =
        group.window > 0 ? std::min<int64_t>(context, int64_t{group.window} + kStepTokens) : context;
    const auto n_pages = static_cast<uint64_t>((n_cached + kPageTokens - 1) / kPageTokens);
    n_bytes += n_pages * page_bytes(group, model.caches, k_f16);
  }
  return n_bytes;
}

}  // namespace

Result<MemoryNeed> memory_need(const GgufFile& file, int64_t context) {
  ZINC_TRY(model, read_model(file));
  MemoryNeed need;
  need.weight_bytes = resident_weight_bytes(model.graph);
  const int64_t positions = std::min<int64_t>(context, std::max<int64_t>(1, model.config.max_context));
  need.cache_bytes = cache_bytes(model, positions);
  const int n_tokens = static_cast<int>(std::min<int64_t>(positions, kStepTokens));
  need.working_bytes = uint64_t{plan_memory(model.graph, n_tokens, 1, false).n_elems} * sizeof(float);
  return need;
}

uint64_t estimated_memory_bytes(uint64_t file_bytes) {
  return file_bytes == 0 ? 0 : file_bytes + file_bytes / 10 + kSpareBytes;
}

MemoryCapacity host_memory() { return {physical_memory_bytes(), available_memory_bytes()}; }

Fit judge_fit(uint64_t needed_bytes, const MemoryCapacity& memory) {
  if (needed_bytes == 0) return Fit::unknown;
  if (needed_bytes > memory.n_bytes) return Fit::too_large;
  return needed_bytes > memory.n_available ? Fit::tight : Fit::fits;
}

std::string_view fit_name(Fit fit) {
  switch (fit) {
    case Fit::fits:
      return "fits";
    case Fit::tight:
      return "tight";
    case Fit::too_large:
      return "too large";
    case Fit::unknown:
      break;
  }
  return "unknown";
}

}  // namespace zinc
