// A model's weights and caches on a device without memory, to lower a step without a GPU; and the cost of its calls.
#pragma once

#include <memory>

#include "backend/gpu/cache.h"
#include "backend/gpu/fused_call.h"
#include "backend/gpu/graph_uses.h"
#include "backend/gpu/layout_device.h"
#include "backend/plan.h"
#include "backend/step_kernels.h"

namespace zinc::gpu {

struct StepLayout {
  // The graph must outlive the layout.
  static Result<std::unique_ptr<StepLayout>> make(const Graph& graph, const BatchShape& step,
                                                  const KernelFormats& formats);
  LayoutDevice device;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<Cache> cache;
  Bucket bucket;  // of the step alone
};

// Weights, cache and operations of the nodes; activations that the call reads from memory or writes for other calls.
// `nodes`: the cost of each node of the graph.
Cost call_cost(const FusedCall& call, const Graph& graph, const GraphUses& uses, const GraphCost& nodes);

// Collects the launches of a step by the call that they belong to; launches of a call follow each other.
class KernelLister {
 public:
  KernelLister(const Graph& graph, const GraphUses& uses, GraphCost nodes)
      : graph_(graph), uses_(uses), nodes_(std::move(nodes)) {}
  void add(const FusedCall* call, KernelLaunch launch);  // nullptr: prepares the step
  StepKernels finish(std::string device) { return {std::move(device), nodes_.peaks, std::move(groups_)}; }

 private:
  const Graph& graph_;
  const GraphUses& uses_;
  GraphCost nodes_;
  std::vector<KernelGroup> groups_;
  std::optional<const FusedCall*> last_;
};
std::string grid_text(const std::array<uint32_t, 3>& grid);  // "132 x 1 x 1"

}  // namespace zinc::gpu
