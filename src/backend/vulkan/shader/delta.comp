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

float next_keys[N], next_queries[N];

Token load_token(Delta d, int t, int h, int column) {
  Token token;
  int head = (t * d.k_heads + key_head(d, h)) * d.k_dim;
  [[unroll]] for (int i = 0; i < N; ++i) {
    next_keys[i] = has_row(d, i) ? Floats(d.k).at[head + i * 8 + part_id()] : 0.0;
    next_queries[i] = has_row(d, i) ? Floats(d.q).at[head + i * 8 + part_id()] : 0.0;
  }
  token.v = column < d.v_dim ? Floats(d.v).at[(t * d.v_heads + h) * d.v_dim + column] : 0.0;
  token.alpha = Floats(d.alpha).at[t * d.v_heads + h];
  token.beta = Floats(d.beta).at[t * d.v_heads + h];
  return token;
}

void main() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), column = int(gl_WorkGroupID.x) * 32 + thread_id() / 8;
  if (seq >= step_count(kSeqs)) return;
  int begin = Ints(step.seq_begin).at[seq], end = Ints(step.seq_begin).at[seq + 1];
  if (begin == end) return;
  Delta d = p.delta;
  bool is_inside = column < d.v_dim;
  uint64_t state = delta_state(d, Ints(step.slots).at[seq], h);
  load_state(d, state, column, is_inside && Ints(step.positions).at[begin] > 0);
  float dt_bias = Floats(d.dt_bias).at[h], a = Floats(d.a).at[h];
  Token next = load_token(d, begin, h, column);
  for (int t = begin; t < end; ++t) {
    Token token = next;
    [[unroll]] for (int i = 0; i < N; ++i) {
      keys[i] = next_keys[i];
      queries[i] = next_queries[i];
    }
    next = load_token(d, min(t + 1, end - 1), h, column);  // on its way while this one is taken
    float y = take_token(d, token, dt_bias, a);
    if (part_id() == 0 && is_inside) Floats(d.out_).at[(t * d.v_heads + h) * d.v_dim + column] = y;
  }
  store_state(d, state, column, is_inside);
}
