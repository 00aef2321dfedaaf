// A graph compiled for one size bucket. start() replays it without allocations or decisions.
// Used only by the thread that owns the backend.
#pragma once

#include <span>

#include "backend/step.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

struct Bucket {
  int max_tokens = 1, max_seqs = 1, max_outputs = 1;
  bool keep_values = false;  // Plan::value can read every value: for tests and tools, costs memory
};

class Plan {
 public:
  virtual ~Plan() = default;
  // Starts a step; at most two may be in flight. REQUIRES: the inputs fit the bucket and the cache.
  virtual void start(const StepInputs& inputs) = 0;
  // Waits for the oldest step in flight. REQUIRES: a step is in flight.
  virtual Result<StepOutput> wait() = 0;
  // A value of the last finished step, row-major. REQUIRES: Bucket::keep_values, and v is an f32 activation.
  virtual std::span<const float> value(Value v) const = 0;
};

}  // namespace zinc
