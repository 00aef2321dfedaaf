// A graph compiled for one bucket: one command buffer per step class, recorded once. A step writes a few
// kilobytes of inputs, submits the recorded commands and waits for a timeline value.
#pragma once

#include <array>
#include <vector>

#include "backend/gpu/plan.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

// The programs of a step class. Copies of outputs to the host are empty if the graph does not have them.
enum ProgramKind : size_t { kStepProgram, kLogitsCopy, kHiddenCopy };
using ClassPrograms = std::array<Program, 3>;  // by ProgramKind
class VulkanPlan final : public gpu::StepPlan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache,
                                               Device& device, const Bucket& bucket);
  static gpu::LayoutOptions layout_options(const Device& device);
  ~VulkanPlan() override;
  size_t device_bytes() const override { return StepPlan::device_bytes() + params_bytes_; }

 private:
  static constexpr size_t kStepParamsBytes = kMaxInFlight * Device::kMaxParamsBytes;
  // A program and its command buffers: one per in-flight step, because each has its own inputs.
  struct RecordedProgram {
    Program program;  // until it is recorded
    Buffer params;    // of all dispatches
    DescriptorSet set;
    std::array<vk::CommandBuffer, kMaxInFlight> commands{};
    // With Bucket::time_kernels, of the step's program.
    std::unique_ptr<Timestamps> timestamps;
    uint32_t n_timestamps = 0;  // of a step
  };
  struct RecordedClass {
    std::array<RecordedProgram, std::tuple_size_v<ClassPrograms>> programs;
    uint32_t n_submissions = 0;
  };

  VulkanPlan(const Graph& graph, const gpu::Weights& weights, gpu::Cache& cache, Device& device, const Bucket& bucket)
      : StepPlan(graph, weights, cache, device, bucket), device_(device) {}
  Status prepare();
  Status lower_class(size_t step_class);
  Result<Buffer> allocate_params(size_t n_bytes);
  Status prepare_class(size_t step_class) override;
  Status submit(const StepInputs& in, size_t index) override;
  Status wait_for(size_t index) override;
  Result<std::vector<double>> read_kernel_marks(size_t index) override;
  void fill_step_params(size_t index);
  Status record(RecordedProgram& recorded);
  void add_timestamps(size_t step_class);

  Device& device_;
  Buffer step_params_;                   // one per in-flight step
  size_t params_bytes_ = 0;              // of the step and of all classes, in device memory
  std::vector<RecordedClass> recorded_;  // per step class
  std::array<TimelineValue, kMaxInFlight> timeline_values_ = {};
};

}  // namespace zinc::vulkan
