// A delta layer's one token from its convolution on: the convolution, the norms of q and k, the gated delta rule. Workgroups
// that share channels compute the same of them, and write the same into the state. Grid: column tiles, value heads.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "taps.glsl"
#include "recurrence.glsl"
#include "chain.glsl"

layout(constant_id = 2) const int kTaps = 4;

const int kColumns = 32;
struct Params {
  Chain chain;
  Delta delta;
  Conv conv;
  float eps;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared float channel_values[2 * kMaxKeys + kColumns];  // q, k, and v of the workgroup's columns

// A channel of the convolution: what does not depend on the token is there before the workgroup waits.
struct Channel {
  int id;      // -1: none
  float past;  // the older taps' products, added up
  float newest_weight;
};
const int kChannels = (2 * kMaxKeys + kColumns + kThreads - 1) / kThreads;  // of a thread

Channel begin_channel(uint64_t state, int position, int c) {
  if (c < 0) return Channel(c, 0, 0);
  float weights[kTaps], window[kTaps];
  [[unroll]] for (int tap = 0; tap < kTaps; ++tap) {  // every load before the first use
    int past = position - (kTaps - 1 - tap);
    weights[tap] = Floats(p.conv.weight).at[c * kTaps + tap];
    window[tap] = tap + 1 < kTaps && past >= 0 ? Floats(state).at[place_in_state(p.conv, past, c)] : 0.0;
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

// Of q (warp 0) and k (warp 1). REQUIRES: every thread of the workgroup calls.
void norm_keys() {
  int k_dim = p.delta.k_dim, base = min(warp_id(), 1) * kMaxKeys + lane_id() * 8;
  Eight x = Eight(vec4(0), vec4(0));
  if (warp_id() < 2) {  // the others only take part in the sum
    [[unroll]] for (int i = 0; i < 4; ++i) {
      if (lane_id() * 8 + i < k_dim) x.a[i] = channel_values[base + i];
      if (lane_id() * 8 + 4 + i < k_dim) x.b[i] = channel_values[base + 4 + i];
    }
  }
  precise float factor = 1.0 / max(sqrt(lanes_sum(squares(x, 0), 32)), p.eps);
  x = normed(x, factor, 0ul, 0, k_dim);
  if (warp_id() < 2) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      if (lane_id() * 8 + i < k_dim) channel_values[base + i] = x.a[i];
      if (lane_id() * 8 + 4 + i < k_dim) channel_values[base + 4 + i] = x.b[i];
    }
  }
  barrier();
}

void main() {
  Delta d = p.delta;
  int h = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * kColumns, column = first + thread_id() / 8;
  bool is_inside = column < d.v_dim;
  int slot = Ints(step.slots).at[0], position = Ints(step.positions).at[0], key_dim = d.k_heads * d.k_dim;
  uint64_t state = delta_state(d, slot, h), conv = conv_state(p.conv, slot);
  load_state(d, state, column, is_inside && position > 0);
  Channel channels[kChannels];
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    int i = k * kThreads + thread_id(), in_head = i % kMaxKeys, v = i - 2 * kMaxKeys, c = -1;
    if (v >= 0) {
      if (v < kColumns && first + v < d.v_dim) c = 2 * key_dim + h * d.v_dim + first + v;
    } else if (in_head < d.k_dim) {
      c = i / kMaxKeys * key_dim + key_head(d, h) * d.k_dim + in_head;
    }
    channels[k] = begin_channel(conv, position, c);
  }
  float dt_bias = Floats(d.dt_bias).at[h], a = Floats(d.a).at[h];
  wait_for_group(p.chain);
  float alpha = PassedFloats(d.alpha).at[h], beta = PassedFloats(d.beta).at[h], newest[kChannels];
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    newest[k] = channels[k].id >= 0 ? PassedFloats(p.conv.x).at[channels[k].id] : 0.0;
  }
  Gates gates = gates_of(alpha, beta, dt_bias, a);
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    if (channels[k].id >= 0) channel_values[k * kThreads + thread_id()] = convolved(channels[k], newest[k]);
  }
  barrier();
  norm_keys();
  [[unroll]] for (int i = 0; i < kFours; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int row = first_row(i) + c;
      queries[i][c] = row < d.k_dim ? channel_values[row] : 0.0;
      keys[i][c] = row < d.k_dim ? channel_values[kMaxKeys + row] : 0.0;
    }
  }
  float y = finished(d, take_token(is_inside ? channel_values[2 * kMaxKeys + thread_id() / 8] : 0.0, gates));
  if (part_id() == 0 && is_inside) PassedFloats(d.out_).at[h * d.v_dim + column] = y;
  count_workgroup(p.chain);  // states are the next step's business
  store_state(d, state, column, is_inside);
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    int c = channels[k].id;
    if (c >= 0) Floats(conv).at[place_in_state(p.conv, position, c)] = newest[k];
  }
}
