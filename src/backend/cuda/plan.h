// A graph compiled for one bucket: one captured CUDA graph per class of step sizes. A step uploads a few kilobytes,
// replays a graph and copies the requested outputs to the host. Two steps may be in flight.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "backend/cuda/lowering.h"
#include "backend/plan.h"

namespace zinc::cuda {

class CudaPlan final : public Plan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, const CudaWeights& weights, CudaCache& cache,
                                               Device& device, const Bucket& bucket);
  ~CudaPlan() override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;

 private:
  struct Variant {
    StepClass sizes;
    GraphExec exec = nullptr;
  };
  // Host buffers and state of a step in flight.
  struct InFlightStep {
    PinnedBuffer upload, hidden_in, sampled, logits, hidden;
    Event done = nullptr;
    size_t n_tokens = 0, n_outputs = 0, n_logits = 0, n_hidden = 0;
    std::optional<Error> error;  // why it could not be started
  };

  CudaPlan(const Graph& graph, CudaCache& cache, Device& device, const Bucket& bucket)
      : graph_(graph), cache_(cache), device_(device), bucket_(bucket) {}
  Status prepare(const CudaWeights& weights);
  Status allocate_host_buffers(InFlightStep& step);
  void check(const StepInputs& in) const;
  size_t fill_upload(const StepInputs& in, int* to) const;  // ints used
  const Variant& variant_for(size_t n_tokens, size_t n_outputs) const;
  Status queue(const StepInputs& in, InFlightStep& step);
  Status reserve_outputs(const StepInputs& in, InFlightStep& step) const;
  Status queue_outputs(const StepInputs& in, InFlightStep& step);
  Status grow(PinnedBuffer& buffer, size_t n_bytes) const;

  const Graph& graph_;
  CudaCache& cache_;
  Device& device_;
  Bucket bucket_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<Variant> variants_;
  std::array<InFlightStep, 2> in_flight_;  // step k uses entry k % 2
  size_t n_started_ = 0, n_waited_ = 0;
  std::optional<Error> error_;      // the device is lost: every later step fails with it
  std::vector<float> kept_values_;  // with Bucket::keep_values: all activations of the last finished step
  size_t kept_tokens_ = 0, kept_outputs_ = 0;
};

}  // namespace zinc::cuda
