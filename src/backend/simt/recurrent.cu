// What carries state from token to token: short convolutions and the gated delta rule. Tokens of a sequence one after
// the other, its state in registers from the first to the last.
#include "backend/simt/dialect.h"

namespace zinc::simt {

// Grid: channels / 256, sequences; one thread per channel.
ZINC_KERNEL short_conv(ConvParams p) {
  let_next_start();
  wait_for_previous();
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int seq = static_cast<int>(blockIdx.y);
  if (c >= p.n_channels || seq >= p.step.counts[kSeqs]) return;
  const int begin = p.step.seq_begin[seq], end = p.step.seq_begin[seq + 1];
  if (begin == end) return;
  const bool is_fresh = p.step.positions[begin] == 0;
  float* state = p.states + p.step.slots[seq] * p.slot_floats + c;  // [taps-1, channels], oldest first
  const int n_past = p.n_taps - 1;
  float weight[kMaxTaps], window[kMaxTaps];  // window: right-aligned, the newest last
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j) {
    const int tap = j - (kMaxTaps - p.n_taps);
    weight[j] = tap >= 0 ? p.weight[c * p.n_taps + tap] : 0.0f;
    window[j] = tap >= 1 && !is_fresh ? state[static_cast<long long>(tap - 1) * p.n_channels] : 0.0f;
  }
  for (int t = begin; t < end; ++t) {
#pragma unroll
    for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
    window[kMaxTaps - 1] = p.x[static_cast<long long>(t) * p.n_channels + c];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kMaxTaps; ++j) sum = fmaf(weight[j], window[j], sum);
    p.out[static_cast<long long>(t) * p.n_channels + c] = sum * sigmoid(sum);
  }
#pragma unroll
  for (int j = 1; j < kMaxTaps; ++j) {
    const int tap = j - (kMaxTaps - n_past);
    if (tap >= 0) state[static_cast<long long>(tap) * p.n_channels] = window[j];
  }
}

// Per value head: S <- exp(a softplus(alpha + dt_bias)) S;  d = sigmoid(beta) (v - S^T k);  S <- S + k d^T;
// out = S^T (q * q_scale). Eight lanes share a column of S, lane i has its rows i, i + 8, ...; 32 columns a block.
// Grid: column tiles, value heads, sequences.
template <int N>
ZINC_DEVICE void delta_net(const DeltaParams& p) {
  let_next_start();
  wait_for_previous();
  const int part = static_cast<int>(threadIdx.x) % 8, h = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x) / 8;
  const int seq = static_cast<int>(blockIdx.z);
  if (seq >= p.step.counts[kSeqs]) return;
  const int begin = p.step.seq_begin[seq], end = p.step.seq_begin[seq + 1];
  if (begin == end) return;
  const bool is_inside = column < p.v_dim;
  const int k_head = p.is_cyclic ? h % p.k_heads : h / (p.v_heads / p.k_heads);
  float* state = p.states + p.step.slots[seq] * p.slot_floats + static_cast<long long>(h) * p.k_dim * p.v_dim + column;
  const bool is_fresh = p.step.positions[begin] == 0;
  float S[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int k = i * 8 + part;
    S[i] = k < p.k_dim && is_inside && !is_fresh ? state[static_cast<long long>(k) * p.v_dim] : 0.0f;
  }
  for (long long t = begin; t < end; ++t) {
    const float* q = p.q + (t * p.k_heads + k_head) * p.k_dim;
    const float* key = p.k + (t * p.k_heads + k_head) * p.k_dim;
    const float gate = p.alpha[t * p.v_heads + h] + p.dt_bias[h];
    const float decay = expf(p.a[h] * (gate > 20.0f ? gate : log1pf(expf(gate))));
    const float beta = sigmoid(p.beta[t * p.v_heads + h]);
    const float v = is_inside ? p.v[(t * p.v_heads + h) * p.v_dim + column] : 0.0f;
    float k_part[N], seen = 0, out = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      k_part[i] = i * 8 + part < p.k_dim ? key[i * 8 + part] : 0.0f;
      S[i] *= decay;
      seen = fmaf(S[i], k_part[i], seen);
    }
    const float delta = beta * (v - lanes_sum(seen, 8));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      S[i] = fmaf(k_part[i], delta, S[i]);
      out = fmaf(S[i], i * 8 + part < p.k_dim ? q[i * 8 + part] : 0.0f, out);
    }
    out = lanes_sum(out, 8) * p.q_scale;
    if (part == 0 && is_inside) p.out[(t * p.v_heads + h) * p.v_dim + column] = out;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int k = i * 8 + part;
    if (k < p.k_dim && is_inside) state[static_cast<long long>(k) * p.v_dim] = S[i];
  }
}

ZINC_KERNEL delta_net_128(DeltaParams p) { delta_net<16>(p); }
ZINC_KERNEL delta_net_256(DeltaParams p) { delta_net<32>(p); }

}  // namespace zinc::simt
