// Copies n_copied elements of each row of from_width into rows of to_width. One thread per element.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { CopyParams p; };

void copy() {
  int index = flat_id(), row = index / p.n_copied, i = index % p.n_copied;
  if (row >= rows_of(p.n_rows) * p.vectors_per_row) return;
  uint64_t from = p.kind == kHiddenIn ? step.hidden_in : p.from;
  uint64_t to = p.kind == kLogitsOut ? step.logits_out : p.kind == kHiddenOut ? step.hidden_out : p.to;
  int from_row = row;
  if (p.kind == kOutputRows) from_row = Ints(step.output_rows).data[row];
  if (p.kind == kLogitsOut) from_row = Ints(step.logit_rows).data[row];
  CoherentFloats(to + uint64_t(row) * uint64_t(p.to_width) * 4ul).data[p.to_begin + i] =
      CoherentFloats(from + uint64_t(from_row) * uint64_t(p.from_width) * 4ul).data[p.from_begin + i];
}

void main() {
  wait_producers(p.sync);
  copy();
  signal_done(p.sync);
}
