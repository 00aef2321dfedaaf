// Decode of a delta-net layer: short convolution, norms of q and k, gated delta rule. Workgroups that share channels
// compute and store identical values for them. Grid: column tiles, value heads.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "short_conv.glsl"
#include "delta_rule.glsl"
#include "counter_sync.glsl"

layout(constant_id = kSpecDeltaDecodeTaps) const int kTaps = 4;

const int kColumns = 32;
layout(set = 0, binding = 0, scalar) uniform Block { DeltaDecodeParams p; };

shared float channel_values[2 * kPaddedKeyDim + kColumns];  // q, k, and v of the workgroup's columns

// A channel of the convolution. The part that does not depend on the new token is computed before the wait.
struct Channel {
  int id;      // -1: none
  float past;  // sum of the older taps
  float newest_weight;
};
const int kChannels = (2 * kPaddedKeyDim + kColumns + kThreads - 1) / kThreads;  // per thread

Channel begin_channel(uint64_t state, int position, int c) {
  if (c < 0) return Channel(c, 0, 0);
  float weights[kTaps], window[kTaps];
  [[unroll]] for (int tap = 0; tap < kTaps; ++tap) {  // all loads before the first use
    int past = position - (kTaps - 1 - tap);
    weights[tap] = Floats(p.conv.weight).data[c * kTaps + tap];
    window[tap] = tap + 1 < kTaps && past >= 0 ? Floats(state).data[state_index(p.conv, past, c)] : 0.0;
  }
  precise float sum = 0;
  [[unroll]] for (int tap = 0; tap + 1 < kTaps; ++tap) sum = fma(weights[tap], window[tap], sum);
  return Channel(c, sum, weights[kTaps - 1]);
}
float convolved(Channel channel, float newest) {
  precise float sum = fma(channel.newest_weight, newest, channel.past);
  precise float y = sum * sigmoid(sum);
  return y;
}

// L2 norm of q (warp 0) and k (warp 1). REQUIRES: every thread of the workgroup calls.
void norm_keys() {
  int k_dim = p.delta.k_dim, base = min(warp_id(), 1) * kPaddedKeyDim + lane_id() * 8;
  Vec8 x = Vec8(vec4(0), vec4(0));
  if (warp_id() < 2) {  // the other warps only take part in the reduction
    [[unroll]] for (int i = 0; i < 4; ++i) {
      if (lane_id() * 8 + i < k_dim) x.a[i] = channel_values[base + i];
      if (lane_id() * 8 + 4 + i < k_dim) x.b[i] = channel_values[base + 4 + i];
    }
  }
  precise float factor = 1.0 / max(sqrt(clustered_sum(sum_squares(x, 0), 32)), p.eps);
  x = apply_norm(x, factor, 0ul, 0, k_dim);
  if (warp_id() < 2) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      if (lane_id() * 8 + i < k_dim) channel_values[base + i] = x.a[i];
      if (lane_id() * 8 + 4 + i < k_dim) channel_values[base + 4 + i] = x.b[i];
    }
  }
  barrier();
}

void main() {
  DeltaParams d = p.delta;
  int h = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * kColumns, column = first + thread_id() / 8;
  bool is_in_bounds = column < d.v_dim;
  int slot = Ints(step.slots).data[0], position = Ints(step.positions).data[0], key_dim = d.k_heads * d.k_dim;
  uint64_t state = delta_state(d, slot, h), conv = conv_state(p.conv, slot);
  load_state(d, state, column, is_in_bounds && position > 0);
  Channel channels[kChannels];
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    int i = k * kThreads + thread_id(), in_head = i % kPaddedKeyDim, v = i - 2 * kPaddedKeyDim, c = -1;
    if (v >= 0) {
      if (v < kColumns && first + v < d.v_dim) c = 2 * key_dim + h * d.v_dim + first + v;
    } else if (in_head < d.k_dim) {
      c = i / kPaddedKeyDim * key_dim + key_head(d, h) * d.k_dim + in_head;
    }
    channels[k] = begin_channel(conv, position, c);
  }
  float dt_bias = Floats(d.dt_bias).data[h], a = Floats(d.a).data[h];
  wait_producers(p.sync);
  float alpha = CoherentFloats(d.alpha).data[h], beta = CoherentFloats(d.beta).data[h], newest[kChannels];
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    newest[k] = channels[k].id >= 0 ? CoherentFloats(p.conv.x).data[channels[k].id] : 0.0;
  }
  Gates gates = gates_of(alpha, beta, dt_bias, a);
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    if (channels[k].id >= 0) channel_values[k * kThreads + thread_id()] = convolved(channels[k], newest[k]);
  }
  barrier();
  norm_keys();
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int row = first_row(i) + c;
      queries[i][c] = row < d.k_dim ? channel_values[row] : 0.0;
      keys[i][c] = row < d.k_dim ? channel_values[kPaddedKeyDim + row] : 0.0;
    }
  }
  float y = sum_and_scale(d, delta_step(is_in_bounds ? channel_values[2 * kPaddedKeyDim + thread_id() / 8] : 0.0, gates));
  if (lane_in_column() == 0 && is_in_bounds) CoherentFloats(d.out_).data[h * d.v_dim + column] = y;
  signal_done(p.sync);  // the states are read by the next step only
  store_state(d, state, column, is_in_bounds);
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    int c = channels[k].id;
    if (c >= 0) Floats(conv).data[state_index(p.conv, position, c)] = newest[k];
  }
}
