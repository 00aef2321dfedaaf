// A graph compiled for one bucket: for each class of step sizes one command buffer, recorded once. A step is one write
// of a few kilobytes into memory the device reads, one submission of what is recorded, and a value of the timeline to
// wait for; two steps may be queued.
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
  static constexpr size_t kFlights = 2;
  // A program, and its recordings: one per flight, as each has inputs of its own.
  struct Recorded {
    Program program;
    Buffer blocks;
    BlockSet set;
    std::array<VkCommandBuffer, kFlights> commands{};
    uint32_t n_runs = 0;
  };
  struct Variant {
    StepClass sizes;
    std::optional<Recorded> recorded;
  };
  // What a step in flight needs on the host.
  struct Flight {
    Buffer upload, hidden_in, sampled, logits, hidden;
    Ticket ticket = 0;
    size_t n_tokens = 0, n_outputs = 0, n_logits = 0, n_hidden = 0;
    std::optional<Error> error;  // why it was not begun
  };

  VulkanPlan(const Graph& graph, const VulkanWeights& weights, VulkanCache& cache, Device& device, const Bucket& bucket)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), bucket_(bucket) {}
  Status prepare();
  Status prepare_flight(size_t index);
  void write_step_block(size_t index);
  Result<Recorded> record(Program program);
  Status record_variant(Variant& variant);
  Result<Variant*> variant_for(size_t n_tokens, size_t n_outputs);
  Result<VkCommandBuffer> copy_commands(std::optional<Recorded>& recorded, Value v, CopyKind kind, size_t index);
  void check(const StepInputs& in) const;
  void fill_upload(const StepInputs& in, int* to) const;
  void fill_pages(const StepInputs& in, int* to) const;
  Status queue(const StepInputs& in, size_t index);
  Status grow(Buffer& buffer, size_t n_bytes, Memory kind, size_t index);
  void free(Recorded& recorded);

  const Graph& graph_;
  const VulkanWeights& weights_;
  VulkanCache& cache_;
  Device& device_;
  Bucket bucket_;
  std::unique_ptr<Room> room_;
  Buffer steps_;  // a block per flight
  std::vector<Variant> variants_;
  std::optional<Recorded> logits_copy_, hidden_copy_;
  std::array<Flight, kFlights> flights_;  // of step k at k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::optional<Error> error_;  // the device is lost: every later step fails with it
  std::vector<float> kept_;     // with Bucket::keep_values: all activations of the last finished step
  size_t kept_tokens_ = 0, kept_outputs_ = 0;
};

}  // namespace zinc::vulkan
