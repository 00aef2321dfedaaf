// A graph compiled for one size bucket. start() replays: it allocates nothing and decides nothing.
// Used by one thread, the one that owns the backend.
#pragma once

#include <span>

#include "backend/step.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

struct Bucket {
  int max_tokens = 1, max_seqs = 1, max_outputs = 1;
  bool keep_values = false;  // every value stays readable through Plan::value: for tests and tools, costs memory
};

class Plan {
 public:
  virtual ~Plan() = default;
  // Begins a step; two may be in flight. REQUIRES: the inputs fit the bucket and the cache's sizes.
  virtual void start(const StepInputs& inputs) = 0;
  // The oldest step's outcome. REQUIRES: a step is in flight.
  virtual Result<StepOutput> wait() = 0;
  // A value of the last finished step, rows first. REQUIRES: Bucket::keep_values, and an f32 activation.
  virtual std::span<const float> value(Value v) const = 0;
};

}  // namespace zinc
