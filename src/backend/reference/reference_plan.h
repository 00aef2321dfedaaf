// Runs a graph's nodes one by one. start() computes the whole step; wait() returns its result. Kernels allocate scratch
// memory of some rows, which a step frees.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "backend/plan.h"
#include "backend/reference/kernels.h"
#include "base/aligned_buffer.h"

namespace zinc::reference {

class ReferencePlan final : public Plan {
 public:
  static Result<std::unique_ptr<Plan>> compile(const Graph& graph, ReferenceCache& cache, ThreadPool& threads,
                                               AllocateBuffer allocate_buffer, const Bucket& bucket);
  size_t device_bytes() const override;
  void start(const StepInputs& inputs) override;
  Result<StepOutput> wait() override;
  std::span<const float> value(Value v) const override;

 private:
  struct StepResult {
    std::vector<TokenId> sampled;
    std::vector<float> logits, hidden;
  };
  ReferencePlan(const Graph& graph, ReferenceCache& cache, ThreadPool& threads, const Bucket& bucket)
      : graph_(graph), cache_(cache), threads_(threads), bucket_(bucket) {}
  Status prepare(AllocateBuffer allocate_buffer);
  void check(const StepInputs& inputs) const;
  void run_nodes(const StepInputs& inputs);
  void store_result(const StepInputs& inputs);

  const Graph& graph_;
  ReferenceCache& cache_;
  ThreadPool& threads_;
  Bucket bucket_;
  std::shared_ptr<AlignedBuffer> arena_;
  size_t own_arena_bytes_ = 0;  // 0: the arena is that of another plan
  std::vector<float*> data_;
  std::vector<Kernel> kernels_;
  std::vector<TokenId> tokens_;  // of the step, kFromDevice resolved
  std::vector<int32_t> seq_of_token_;
  size_t n_tokens_ = 0, n_outputs_ = 0;  // of the last step
  std::array<StepResult, 2> results_;    // step k uses entry k % 2: valid until the second start() after its own
  size_t n_started_ = 0, n_waited_ = 0;
};

}  // namespace zinc::reference
