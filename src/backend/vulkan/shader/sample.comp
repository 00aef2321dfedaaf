// Greedy sampling: argmax of each row of logits, the lowest id wins ties. First pass (kFirstPass): the best of each part of a
// row; second pass: the best part. The last row of a sequence also stores its token in the sequence's slot.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/sample.h"
#include "argmax.glsl"

layout(constant_id = kSpecSampleFirstPass) const int kFirstPass = 1;

layout(set = 0, binding = 0, scalar) uniform Block { SampleParams p; };

void main() {
  int row = int(gl_WorkGroupID.y), split = int(gl_WorkGroupID.x), n_rows = step_count(kOutputs);
  if (row >= n_rows) return;
  float best = 0;
  int index = kNoIndex;
  if (kFirstPass != 0) {
    int n = (p.vocab + kSampleSplits - 1) / kSampleSplits, end = min(p.vocab, (split + 1) * n);
    uint64_t logits = p.logits + uint64_t(row) * uint64_t(p.vocab) * 4ul;
    const int kUnroll = 8;
    for (int first = split * n + thread_id(); first < end; first += kUnroll * kThreads) {
      float values[kUnroll];
      [[unroll]] for (int k = 0; k < kUnroll; ++k) values[k] = Floats(logits).data[min(first + k * kThreads, end - 1)];
      [[unroll]] for (int k = 0; k < kUnroll; ++k) {
        if (first + k * kThreads < end && (values[k] > best || index == kNoIndex)) {
          best = values[k];
          index = first + k * kThreads;
        }
      }
    }
    workgroup_argmax(best, index);
    if (thread_id() == 0) {
      Floats(p.best).data[row * kSampleSplits + split] = best;
      Ints(p.best_id).data[row * kSampleSplits + split] = index;
    }
    return;
  }
  if (thread_id() < kSampleSplits) {
    best = Floats(p.best).data[row * kSampleSplits + thread_id()];
    index = Ints(p.best_id).data[row * kSampleSplits + thread_id()];
  }
  workgroup_argmax(best, index);
  if (thread_id() != 0) return;
  if (index >= p.vocab) index = 0;
  Ints(step.sampled).data[row] = index;
  int seq = Ints(step.seq_of_token).data[Ints(step.output_rows).data[row]];
  if (row + 1 == n_rows || Ints(step.seq_of_token).data[Ints(step.output_rows).data[row + 1]] != seq) {
    Ints(step.last_sampled).data[Ints(step.slots).data[seq]] = index;
  }
}
