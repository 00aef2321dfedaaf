// Steps are compiled for a few classes of sizes; a step runs the smallest prepared class that it fits. Grids are sized
// for the largest step of a class, and blocks without work exit at once.
#pragma once

#include <vector>

#include "backend/plan.h"

namespace zinc::gpu {

struct StepClass {
  int max_tokens = 1, max_outputs = 1;
  bool fits(size_t n_tokens, size_t n_outputs) const {
    return n_tokens <= static_cast<size_t>(max_tokens) && n_outputs <= static_cast<size_t>(max_outputs);
  }
  bool operator==(const StepClass&) const = default;
};

// Ascending; the last one is the bucket's largest step.
std::vector<StepClass> step_classes(const Bucket& bucket);
// The index of the smallest class that fits. REQUIRES: one does.
size_t find_step_class(const std::vector<StepClass>& classes, size_t n_tokens, size_t n_outputs);
// The largest step of a class of a plan compiled for `bucket`.
Bucket bucket_of(const StepClass& sizes, const Bucket& bucket);

}  // namespace zinc::gpu
