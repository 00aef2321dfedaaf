// A graph compiled for one bucket: one captured CUDA graph per step class. A step uploads a few kilobytes, replays a
// graph and copies the requested outputs to the host.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/weights.h"
#include "backend/gpu/plan.h"
#include "backend/step_kernels.h"

namespace zinc::cuda {

using simt::host::Workspace;

class CudaPlan final : public gpu::StepPlan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                               Device& device, const Bucket& bucket);
  static gpu::LayoutOptions layout_options(const Device& device);
  ~CudaPlan() override;

 private:
  CudaPlan(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache, Device& device, const Bucket& bucket)
      : StepPlan(graph, weights, cache, device, bucket), device_(device) {}
  Status prepare();
  Status prepare_class(size_t step_class) override;
  Status submit(const StepInputs& in, size_t index) override;
  Status wait_for(size_t index) override;
  Result<std::vector<double>> read_kernel_marks(size_t index) override;
  Status queue_outputs(const StepInputs& in, size_t index);
  const Workspace& workspace_of(size_t step_class) const {
    return static_cast<const Workspace&>(workspace(step_class));
  }

  // With Bucket::time_kernels it has an event before the first and after each launch. Launches then do not overlap (no
  // programmatic dependent launch), so that each time is one kernel's; a step is slower than without.
  struct StepGraph {
    GraphExec exec = nullptr;
    std::vector<Event> events;
  };

  Device& device_;
  std::vector<std::vector<StepGraph>> graphs_;  // per step class: one, or one per in-flight step, which has own events
  std::array<Event, kMaxInFlight> done_ = {};   // recorded after a step's last copy
};

// The kernels of a step on a GPU that need not be present (BackendInfo::step_kernels).
Result<StepKernels> step_kernels(std::string_view gpu, const Graph& graph, const BatchShape& step);

}  // namespace zinc::cuda
