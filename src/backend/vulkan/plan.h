// A graph compiled for one bucket: one command buffer per class of step sizes, recorded once. A step writes a few
// kilobytes of inputs, submits the recorded commands and waits for a timeline value; two steps may be queued.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backend/plan.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

class VulkanPlan final : public Plan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const VulkanWeights& weights, VulkanCache& cache,
                                               Device& device, const Bucket& bucket);
  ~VulkanPlan() override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;

 private:
  static constexpr size_t kMaxInFlight = 2;
  // A program and its command buffers: one per in-flight step, because each has its own inputs.
  struct RecordedProgram {
    Program program;
    Buffer params;
    DescriptorSet set;
    std::array<VkCommandBuffer, kMaxInFlight> commands{};
    uint32_t n_submissions = 0;
  };
  struct Variant {
    StepClass sizes;
    std::optional<RecordedProgram> recorded;
  };
  // Host-side state of an in-flight step.
  struct InFlightStep {
    Buffer upload, hidden_in, sampled, logits, hidden;
    TimelineValue timeline_value = 0;
    size_t n_tokens = 0, n_outputs = 0, n_logits = 0, n_hidden = 0;
    std::optional<Error> error;  // why the step was not submitted
  };

  VulkanPlan(const Graph& graph, const VulkanWeights& weights, VulkanCache& cache, Device& device, const Bucket& bucket)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), bucket_(bucket) {}
  Status prepare();
  Status allocate_in_flight(size_t index);
  void write_step_params(size_t index);
  Result<RecordedProgram> record(Program program);
  Status record_variant(Variant& variant);
  Result<Variant*> variant_for(size_t n_tokens, size_t n_outputs);
  Result<VkCommandBuffer> copy_commands(std::optional<RecordedProgram>& recorded, Value v, CopyKind kind, size_t index);
  void check(const StepInputs& in) const;
  void fill_upload(const StepInputs& in, int* upload) const;
  void fill_pages(const StepInputs& in, int* upload) const;
  Status queue(const StepInputs& in, size_t index);
  Status grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index);
  void free(RecordedProgram& recorded);

  const Graph& graph_;
  const VulkanWeights& weights_;
  VulkanCache& cache_;
  Device& device_;
  Bucket bucket_;
  std::unique_ptr<Workspace> workspace_;
  Buffer step_params_;  // one per in-flight step
  std::vector<Variant> variants_;
  std::optional<RecordedProgram> logits_copy_, hidden_copy_;
  std::array<InFlightStep, kMaxInFlight> in_flight_;  // step k uses entry k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::optional<Error> error_;      // after device loss every later step fails with it
  std::vector<float> kept_values_;  // with Bucket::keep_values: all activations of the last finished step
  size_t kept_tokens_ = 0, kept_outputs_ = 0;
};

}  // namespace zinc::vulkan
