// The step's inputs, the uniform block of binding 1 of every kernel; and how a kernel is synchronized with the one
// before. Declared once: host C++, and GLSL by tools/shaders.
#pragma once

#include <cstdint>

#include "backend/gpu/params/limits.h"

namespace zinc::vulkan {

using namespace kernel;
using kernel::kPageTokens;  // not the graph's

// In place of a Count: the step has one row.
inline constexpr int kAlwaysOne = -1;

// Values of kSpecCounterSync. A kernel that only signals reads what other dispatches wrote through caches that a
// barrier must have invalidated.
enum CounterMode : int { kNoCounters = 0, kWaitsAndSignals = 1, kSignals = 2 };

// Counter-based synchronization between dispatches (counter_sync.glsl); the first member of its uniform block.
struct CounterSync {
  uint64_t producer_counter, own_counter;  // of the previous dispatch batch; of this batch
  int n_producers;                         // workgroups of the previous batch per step; 0: a barrier separates them
  int unused;
};

// One struct per kernel, named as in simt/params. A namespace, because graph/op.h has structs of the same names.
namespace shader {

struct StepParams {
  uint64_t counts, tokens, positions, seq_of_token, seq_begin, slots, row_slots, output_rows, logit_rows;
  uint64_t sampling, first_column;
  uint64_t hidden_in;                        // [T, dim] from the host
  uint64_t last_sampled;                     // [slots]
  uint64_t sampled, logits_out, hidden_out;  // read by the host
  int max_seqs, unused;
};

}  // namespace shader
}  // namespace zinc::vulkan
