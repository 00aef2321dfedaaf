// A graph compiled for one bucket: one command buffer per class of step sizes, recorded once. A step writes a few
// kilobytes of inputs, submits the recorded commands and waits for a timeline value.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backend/gpu/plan.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

class VulkanPlan final : public gpu::StepPlan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                               Device& device, const Bucket& bucket);
  ~VulkanPlan() override;

 private:
  // A program and its command buffers: one per in-flight step, because each has its own inputs.
  struct RecordedProgram {
    Buffer params;  // of all dispatches
    DescriptorSet set;
    std::array<VkCommandBuffer, kMaxInFlight> commands{};
    uint32_t n_submissions = 0;
    // With Bucket::time_kernels.
    std::unique_ptr<Timestamps> timestamps;
    std::vector<gpu::KernelName> kernels;
  };

  VulkanPlan(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache, Device& device, const Bucket& bucket)
      : StepPlan(graph, cache, device, bucket), weights_(weights), device_(device), bucket_(bucket) {}
  Status prepare();
  Status submit(const StepInputs& in, size_t index) override;
  Status wait_for(size_t index) override;
  void on_reallocated(size_t index) override;
  Result<std::vector<gpu::DeviceTime>> read_device_times(size_t index) override;
  Lowering lowering(const gpu::StepClass& sizes) const;
  Result<RecordedProgram> record(const Program& program);
  void add_timestamps(const Program& program, RecordedProgram& recorded) const;
  Result<RecordedProgram*> recorded_class(size_t step_class);
  Result<VkCommandBuffer> copy_commands(std::optional<RecordedProgram>& recorded, Value v, CopyKind kind, size_t index);
  void free(RecordedProgram& recorded);

  const gpu::Weights& weights_;
  Device& device_;
  Bucket bucket_;
  std::unique_ptr<Workspace> workspace_;
  Buffer step_params_;                                    // one per in-flight step
  std::vector<std::optional<RecordedProgram>> recorded_;  // per step class
  std::optional<RecordedProgram> logits_copy_, hidden_copy_;
  std::array<TimelineValue, kMaxInFlight> timeline_values_ = {};
  std::array<const RecordedProgram*, kMaxInFlight> submitted_ = {};
};

}  // namespace zinc::vulkan
