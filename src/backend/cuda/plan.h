// A graph compiled for one bucket: one captured CUDA graph per class of step sizes. A step uploads a few kilobytes,
// replays a graph and copies the requested outputs to the host.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/kernel_timer.h"
#include "backend/cuda/lowering.h"
#include "backend/gpu/plan.h"

namespace zinc::cuda {

class CudaPlan final : public gpu::StepPlan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                               Device& device, const Bucket& bucket);
  ~CudaPlan() override;

 private:
  CudaPlan(const Graph& graph, gpu::Cache& cache, Device& device, const Bucket& bucket)
      : StepPlan(graph, cache, device, bucket), device_(device) {}
  Status prepare(const gpu::Weights& weights, const Bucket& bucket);
  Status submit(const StepInputs& in, size_t index) override;
  Status wait_for(size_t index) override;
  Result<std::vector<gpu::DeviceTime>> read_device_times(size_t index) override;
  void fill_sampling(const StepInputs& in, int* upload) const;
  Status queue_outputs(const StepInputs& in, size_t index);

  Device& device_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<GraphExec> graphs_;              // per step class
  std::unique_ptr<KernelTimer> timer_;         // with Bucket::time_kernels: has the graphs instead
  std::array<Event, kMaxInFlight> done_ = {};  // recorded after a step's last copy
};

}  // namespace zinc::cuda
