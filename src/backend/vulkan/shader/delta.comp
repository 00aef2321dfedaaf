// The gated delta rule. Per value head: S <- exp(a softplus(alpha + dt_bias)) S;  d = sigmoid(beta) (v - S^T k);
// S <- S + k d^T;  out = S^T (q * q_scale). Eight threads share a column of S, thread i has its rows i, i + 8, ...; 32
// columns a workgroup; S stays in registers from a sequence's first token to its last. Grid: column tiles, value heads,
// sequences.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"

layout(constant_id = 1) const int N = 16;  // rows of S a thread has: k_dim / 8

struct Params {
  uint64_t q, k, v, alpha, beta, dt_bias, a, out_;
  uint64_t states, slot_bytes;  // of slot 0: [heads, k_dim, v_dim]
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int part = thread_id() % 8, h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z);
  int column = int(gl_WorkGroupID.x) * 32 + thread_id() / 8;
  if (seq >= step_count(kSeqs)) return;
  int begin = Ints(step.seq_begin).at[seq], end = Ints(step.seq_begin).at[seq + 1];
  if (begin == end) return;
  bool is_inside = column < p.v_dim;
  int k_head = p.is_cyclic != 0 ? h % p.k_heads : h / (p.v_heads / p.k_heads);
  uint64_t state = p.states + uint64_t(Ints(step.slots).at[seq]) * p.slot_bytes + uint64_t(h * p.k_dim * p.v_dim) * 4ul;
  bool is_fresh = Ints(step.positions).at[begin] == 0;
  float S[N];
  [[unroll]] for (int i = 0; i < N; ++i) {
    int k = i * 8 + part;
    S[i] = k < p.k_dim && is_inside && !is_fresh ? Floats(state).at[k * p.v_dim + column] : 0.0;
  }
  for (int t = begin; t < end; ++t) {
    int head = (t * p.k_heads + k_head) * p.k_dim;
    precise float gate = Floats(p.alpha).at[t * p.v_heads + h] + Floats(p.dt_bias).at[h];
    precise float softplus = gate > 20.0 ? gate : gate < -15.0 ? exp(gate) : log(1.0 + exp(gate));
    precise float decay = exp(Floats(p.a).at[h] * softplus);
    float beta = sigmoid(Floats(p.beta).at[t * p.v_heads + h]);
    float v = is_inside ? Floats(p.v).at[(t * p.v_heads + h) * p.v_dim + column] : 0.0;
    float k_part[N];
    precise float seen = 0;
    [[unroll]] for (int i = 0; i < N; ++i) {
      k_part[i] = i * 8 + part < p.k_dim ? Floats(p.k).at[head + i * 8 + part] : 0.0;
      precise float decayed = S[i] * decay;
      S[i] = decayed;
      seen = fma(decayed, k_part[i], seen);
    }
    precise float delta = beta * (v - lanes_sum(seen, 8));
    precise float result = 0;
    [[unroll]] for (int i = 0; i < N; ++i) {
      precise float next = fma(k_part[i], delta, S[i]);
      S[i] = next;
      result = fma(next, i * 8 + part < p.k_dim ? Floats(p.q).at[head + i * 8 + part] : 0.0, result);
    }
    precise float y = lanes_sum(result, 8) * p.q_scale;
    if (part == 0 && is_inside) Floats(p.out_).at[(t * p.v_heads + h) * p.v_dim + column] = y;
  }
  [[unroll]] for (int i = 0; i < N; ++i) {
    int k = i * 8 + part;
    if (k < p.k_dim && is_inside) Floats(state).at[k * p.v_dim + column] = S[i];
  }
}
