// The output of a step of a plan that is made of several devices' plans, and what it takes from the steps before it.
#pragma once

#include <optional>
#include <vector>

#include "backend/plan.h"
#include "backend/split/split_cache.h"

namespace zinc::split {

struct StepResult {
  std::vector<TokenId> sampled;
  std::vector<float> logits, hidden;
  std::vector<int32_t> output_slots;  // of the sequence of each output row
  std::optional<Error> error;
  bool is_copied = false;  // out of the last stage's plan

  void reserve(const Graph& graph, const Bucket& bucket);  // untouched, this memory is only reserved
  size_t host_bytes() const { return (logits.capacity() + hidden.capacity()) * sizeof(float); }
  // Begins a step: `tokens` are its tokens, those that an earlier step sampled taken from the cache.
  void begin(const StepInputs& inputs, SplitCache& cache, std::vector<TokenId>& tokens);
  // The end of the last stage.
  Result<StepOutput> finish(Result<StepOutput> out, SplitCache& cache);
  void copy(const Result<StepOutput>& out);  // for outputs that must outlive the next step's start
  Result<StepOutput> copied();
};

}  // namespace zinc::split
