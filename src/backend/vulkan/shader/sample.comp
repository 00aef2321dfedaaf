// The largest of each row of logits, the lowest id among equals: first the best of each part of a row (kParts), then the
// best of those. The last row of a sequence leaves its token in the sequence's slot.
#version 460
#include "memory.glsl"
#include "best.glsl"

layout(constant_id = 1) const int kParts = 1;

const int kSampleSplits = 128;
struct Params {
  uint64_t logits;
  uint64_t best, best_id;  // [R, kSampleSplits]
  int vocab;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int row = int(gl_WorkGroupID.y), part = int(gl_WorkGroupID.x), n_rows = step_count(kOutputs);
  if (row >= n_rows) return;
  float best = 0;
  int place = kNowhere;
  if (kParts != 0) {
    int n = (p.vocab + kSampleSplits - 1) / kSampleSplits, end = min(p.vocab, (part + 1) * n);
    uint64_t logits = p.logits + uint64_t(row) * uint64_t(p.vocab) * 4ul;
    const int kAtOnce = 8;
    for (int first = part * n + thread_id(); first < end; first += kAtOnce * kThreads) {
      float values[kAtOnce];
      [[unroll]] for (int k = 0; k < kAtOnce; ++k) values[k] = Floats(logits).at[min(first + k * kThreads, end - 1)];
      [[unroll]] for (int k = 0; k < kAtOnce; ++k) {
        if (first + k * kThreads < end && (values[k] > best || place == kNowhere)) {
          best = values[k];
          place = first + k * kThreads;
        }
      }
    }
    block_best(best, place);
    if (thread_id() == 0) {
      Floats(p.best).at[row * kSampleSplits + part] = best;
      Ints(p.best_id).at[row * kSampleSplits + part] = place;
    }
    return;
  }
  if (thread_id() < kSampleSplits) {
    best = Floats(p.best).at[row * kSampleSplits + thread_id()];
    place = Ints(p.best_id).at[row * kSampleSplits + thread_id()];
  }
  block_best(best, place);
  if (thread_id() != 0) return;
  if (place >= p.vocab) place = 0;
  Ints(step.sampled).at[row] = place;
  int seq = Ints(step.seq_of_token).at[Ints(step.output_rows).at[row]];
  if (row + 1 == n_rows || Ints(step.seq_of_token).at[Ints(step.output_rows).at[row + 1]] != seq) {
    Ints(step.last_sampled).at[Ints(step.slots).at[seq]] = place;
  }
}
