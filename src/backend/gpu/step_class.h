// Steps are compiled for a few classes of sizes; a step runs the smallest prepared class that it fits. Grids are sized
// for the largest step of a class, and blocks without work exit at once.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/plan.h"

namespace zinc::gpu {

struct StepClass {
  int max_tokens = 1, max_outputs = 1;
  int max_seq_tokens = kAnySeqTokens;  // of one sequence
  bool fits(const StepClass& step) const {
    return step.max_tokens <= max_tokens && step.max_outputs <= max_outputs &&
           std::min(step.max_seq_tokens, step.max_tokens) <= max_seq_tokens;
  }
  bool operator==(const StepClass&) const = default;
};
StepClass class_of(const Bucket& bucket);
StepClass class_of(const StepInputs& step);
// Whether a sequence of the step can have query tiles of many tokens (gpu/attention_units.h).
bool has_prefill_rows(const StepClass& sizes);

// Ascending; the last one is the bucket's largest step. `has_batches`: with classes of their own for batches of
// sequences without prefill rows.
std::vector<StepClass> step_classes(const Bucket& bucket, bool has_batches = false);
// The index of the smallest class that fits. REQUIRES: one does.
size_t find_step_class(const std::vector<StepClass>& classes, const StepClass& step);
// The largest step of a class of a plan compiled for `bucket`.
Bucket bucket_of(const StepClass& sizes, const Bucket& bucket);

}  // namespace zinc::gpu
