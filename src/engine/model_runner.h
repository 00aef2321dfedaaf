// Feeds tokens of one sequence to a model and returns their logits, for tools and tests that score or compare them.
// It samples nothing: the Engine generates. Pages in order, no prefix cache. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/model_instance.h"
#include "engine/step_arrays.h"

namespace zinc {

struct RunnerOptions {
  int context = 0;          // positions
  int step_tokens = 0;      // tokens per step, at most; 0: the backend's default
  bool all_logits = false;  // feed_with_all_logits will be called
  bool keep_values = false;
  bool time_kernels = false;  // Plan::kernel_times() of plan()
};

class ModelRunner {
 public:
  ModelRunner(ModelRunner&&) = default;
  ModelRunner& operator=(ModelRunner&&) = delete;  // would destroy the cache before the plan that uses it
  // The model must outlive the runner. out_of_memory: the context does not fit the model's memory limit. REQUIRES: the
  // model is uploaded; context > 0.
  static Result<ModelRunner> create(const ModelInstance& model, const RunnerOptions& options);

  // Feeds tokens after those fed before. Returns the logits after the last one; the caller may change them until the
  // next call. Fails if the tokens exceed the context; then nothing is fed. REQUIRES: tokens not empty and in the
  // vocabulary.
  Result<std::span<float>> feed(std::span<const TokenId> tokens);
  // The same, with the logits after every token, row by row. REQUIRES: RunnerOptions::all_logits.
  Result<std::vector<float>> feed_with_all_logits(std::span<const TokenId> tokens);

  // Rewinds to `position` and keeps the cached tokens before it. Recurrent states and sliding windows can only return
  // to position 0: elsewhere the states keep their value and the windows see the last fed tokens. That is enough for
  // measuring speed. REQUIRES: every position before it has been fed.
  void move_to(int position) { position_ = position; }

  size_t cache_bytes() const { return cache_->device_bytes(); }
  size_t activation_bytes() const { return plan_->device_bytes(); }
  // Waits until the plan is prepared for steps of all sizes, before a measurement.
  Status wait_until_prepared() { return plan_->wait_until_prepared(); }

  int position() const { return position_; }  // tokens fed
  int context() const { return context_; }
  const Plan& plan() const { return *plan_; }

 private:
  ModelRunner(const ModelInstance& model, int context, int step_tokens, size_t n_groups)
      : model_(&model), context_(context), step_tokens_(step_tokens), arrays_(n_groups) {}
  Status check_context(size_t n_tokens) const;
  // One step with the logits of its last n_rows tokens.
  Result<std::span<float>> step(std::span<const TokenId> tokens, int n_rows);

  const ModelInstance* model_;
  int context_, step_tokens_, position_ = 0;
  SequenceCache sequence_;  // pages 0, 1, 2, ...; wraps around in groups with a window
  StepArrays arrays_;
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace zinc
