// The gated delta rule over a sequence's tokens; S stays in registers from the first to the last. Grid: column tiles, value
// heads, sequences.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "recurrence.glsl"

struct Params {
  Delta delta;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), column = int(gl_WorkGroupID.x) * 32 + thread_id() / 8;
  if (seq >= step_count(kSeqs)) return;
  int begin = Ints(step.seq_begin).at[seq], end = Ints(step.seq_begin).at[seq + 1];
  if (begin == end) return;
  Delta d = p.delta;
  bool is_inside = column < d.v_dim;
  uint64_t state = delta_state(d, Ints(step.slots).at[seq], h);
  load_state(d, state, column, is_inside && Ints(step.positions).at[begin] > 0);
  for (int t = begin; t < end; ++t) {
    int head = (t * d.k_heads + key_head(d, h)) * d.k_dim;
    [[unroll]] for (int i = 0; i < N; ++i) {
      keys[i] = has_row(d, i) ? Floats(d.k).at[head + i * 8 + part_id()] : 0.0;
      queries[i] = has_row(d, i) ? Floats(d.q).at[head + i * 8 + part_id()] : 0.0;
    }
    float y = take_token(d, t, h, is_inside ? Floats(d.v).at[(t * d.v_heads + h) * d.v_dim + column] : 0.0);
    if (part_id() == 0 && is_inside) Floats(d.out_).at[(t * d.v_heads + h) * d.v_dim + column] = y;
  }
  store_state(d, state, column, is_inside);
}
