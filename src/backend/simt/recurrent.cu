// Recurrent layers: short convolution and the gated delta rule, token by token.
#include "backend/simt/delta_chunks.h"
#include "backend/simt/quantize.h"
#include "backend/simt/short_conv.h"

namespace zinc::simt {

// Grid: channels / 256, sequences, chunks of kConvTokens tokens; one thread per channel.
ZINC_KERNEL short_conv(ConvParams p) {
  launch_dependents();
  wait_dependency();
  const int c = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int seq = static_cast<int>(blockIdx.y);
  if (c >= p.n_channels) return;
  const ConvSeq tokens(p, seq);
  const int begin = tokens.begin + static_cast<int>(blockIdx.z) * kConvTokens;
  const int end = min(tokens.end, begin + kConvTokens);
  if (begin >= end) return;
  ConvWindow<kMaxTaps> window;
  window.load(p, tokens, c, begin);
  if (begin == tokens.begin) tokens.store_states<1>(p, c);  // the block that reads the state also updates it
#pragma unroll 4
  for (int t = begin; t < end; ++t) {
    window.push(p.x[static_cast<long long>(t) * p.n_channels + c]);
    p.out[static_cast<long long>(t) * p.n_channels + c] = window.result();
  }
}

// Grid: tiles of 32 columns, value heads, sequences.
template <int N>
ZINC_DEVICE void delta_net(const DeltaParams& p) {
  launch_dependents();
  wait_dependency();
  const int h = static_cast<int>(blockIdx.y), seq = static_cast<int>(blockIdx.z);
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x) / 8;
  if (seq >= p.step.counts[kSeqs]) return;
  const DeltaSpan span(p.step, seq);
  if (span.begin >= span.end || (p.leaves_chunked && span.n_chunks > 0)) return;
  const bool is_in_bounds = column < p.v_dim, is_new = p.step.positions[span.begin] == 0;
  float* states = p.states + static_cast<long long>(h) * p.k_dim * p.v_dim + column;
  DeltaColumn<N> own;
  own.load(p, states + p.step.slots[seq] * p.slot_floats, is_new || !is_in_bounds);
  own.update(p, h, column, span.begin, span.end, states);
}

// ---- decode ----

// A channel's convolution without the newest input, which is known only after the wait.
struct Channel {
  int c;  // negative: none
  float sum, weight;

  ZINC_DEVICE void load(const ConvParams& p, int channel, const float* states, int position) {
    c = channel;
    sum = 0;
    if (c < 0) return;
    for (int tap = 0; tap + 1 < p.n_taps; ++tap) {
      const int past = position - (p.n_taps - 1 - tap);
      const float x = past >= 0 ? states[static_cast<long long>(past % p.n_taps) * p.n_channels + c] : 0.0f;
      sum = fmaf(p.weight[c * p.n_taps + tap], x, sum);
    }
    weight = p.weight[c * p.n_taps + p.n_taps - 1];
  }
  ZINC_DEVICE float finish(const ConvParams& p, float x, float* states, int position) const {
    // Blocks that share the channel store the same value.
    states[static_cast<long long>(position % p.n_taps) * p.n_channels + c] = x;
    const float all = fmaf(weight, x, sum);
    return all * sigmoid(all);
  }
};

// short_conv, both norms and delta_net, fused. States and weights are loaded before the wait.
// Grid: column tiles of each value head; further blocks are idle. has_exact_dims: k_dim is 8 N, and v_dim a multiple
// of 32.
template <int N, bool has_exact_dims>
ZINC_DEVICE void delta_decode(const DeltaLayerParams& params) {
  constexpr int kColumns = 32, kChannels = (2 * 8 * N + kColumns + kThreads - 1) / kThreads;
  __shared__ __align__(16) float values[2 * 8 * N + kColumns];  // q, k, and v of the block's columns
  const DeltaParams& p = params.delta;
  const int k_dim = has_exact_dims ? 8 * N : p.k_dim;
  launch_dependents();
  prefetch_params(params);
  const int n_tiles = (p.v_dim + kColumns - 1) / kColumns, h = static_cast<int>(blockIdx.x) / n_tiles;
  if (h >= p.v_heads) return wait_dependency();
  const int thread = static_cast<int>(threadIdx.x), part = thread % 8;
  const int first = (static_cast<int>(blockIdx.x) - h * n_tiles) * kColumns, column = first + thread / 8;
  const bool is_in_bounds = has_exact_dims || column < p.v_dim;
  const int k_head = key_head(p, h), slot = p.step.slots[0];
  const int position = p.step.positions[0], key_dim = p.k_heads * k_dim;
  float* state = p.states + slot * p.slot_floats + static_cast<long long>(h) * k_dim * p.v_dim + column;
  float* conv = params.conv.states + slot * p.slot_floats;
  float S[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int k = i * 8 + part;
    S[i] = k < k_dim && is_in_bounds && position > 0 ? state[static_cast<long long>(k) * p.v_dim] : 0.0f;
  }
  Channel channels[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const int index = thread + i * kThreads, v = index - 2 * k_dim;
    int c = -1;
    if (index < 2 * k_dim) {
      c = (index < k_dim ? 0 : key_dim - k_dim) + k_head * k_dim + index;
    } else if (v < kColumns && first + v < p.v_dim) {
      c = 2 * key_dim + h * p.v_dim + first + v;
    }
    channels[i].load(params.conv, c, conv, position);
  }
  const float dt_bias = p.dt_bias[h], a = p.a[h];
  wait_dependency();
  float x[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) x[i] = channels[i].c >= 0 ? params.conv.x[channels[i].c] : 0.0f;
  const float gate = p.alpha[h] + dt_bias, beta = sigmoid(p.beta[h]);
  const float decay = expf(a * (gate > 20.0f ? gate : log1pf(expf(gate))));
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    if (channels[i].c >= 0) values[thread + i * kThreads] = channels[i].finish(params.conv, x[i], conv, position);
  }
  __syncthreads();
  if (warp_id() < 2) {
    float* head = values + warp_id() * k_dim;
    const Vec8 own = load_vec8(head, lane_id() * 8, k_dim);
    const float factor = 1.0f / fmaxf(sqrtf(warp_sum(sum_squares(own, 0), 32)), params.norm_eps);
    store_vec8(head, lane_id() * 8, k_dim, normed(own, factor, nullptr, 0, k_dim));
  }
  __syncthreads();
  const float *q = values, *key = values + k_dim;
  const float v = is_in_bounds ? values[2 * k_dim + thread / 8] : 0.0f;
  float s_dot_k = 0, out = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    S[i] *= decay;
    s_dot_k = fmaf(S[i], i * 8 + part < k_dim ? key[i * 8 + part] : 0.0f, s_dot_k);
  }
  const float delta = beta * (v - warp_sum(s_dot_k, 8));
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool has = i * 8 + part < k_dim;
    S[i] = fmaf(has ? key[i * 8 + part] : 0.0f, delta, S[i]);
    out = fmaf(S[i], has ? q[i * 8 + part] : 0.0f, out);
  }
  out = warp_sum(out, 8) * p.q_scale;
  if (part == 0 && is_in_bounds) p.out[h * p.v_dim + column] = out;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int k = i * 8 + part;
    if (k < k_dim && is_in_bounds) state[static_cast<long long>(k) * p.v_dim] = S[i];
  }
}

ZINC_KERNEL_2_PER_SM delta_decode_128(__grid_constant__ const DeltaLayerParams p) { delta_decode<16, true>(p); }
ZINC_KERNEL_2_PER_SM delta_decode_upto_128(__grid_constant__ const DeltaLayerParams p) { delta_decode<16, false>(p); }
ZINC_KERNEL_2_PER_SM delta_decode_upto_256(__grid_constant__ const DeltaLayerParams p) { delta_decode<32, false>(p); }

ZINC_KERNEL delta_net_128(DeltaParams p) { delta_net<16>(p); }
ZINC_KERNEL delta_net_256(DeltaParams p) { delta_net<32>(p); }

}  // namespace zinc::simt
