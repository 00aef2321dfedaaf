// A delta layer's one token from its convolution on: the convolution, the norms of q and k, the gated delta rule. Workgroups
// that share channels compute the same of them, and write the same into the state. Grid: column tiles, value heads.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "taps.glsl"
#include "recurrence.glsl"

const int kColumns = 32, kMaxKeys = 8 * N;
struct Params {
  Delta delta;
  Conv conv;
  float eps;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared float channel_values[2 * kMaxKeys + kColumns];  // q, k, and v of the workgroup's columns

const int kChannels = (2 * kMaxKeys + kColumns + kThreads - 1) / kThreads;  // of a thread
float taps[kChannels][kMaxTaps], inputs[kChannels][kMaxTaps];                // right-aligned, the newest last

// The channel of each place in channel_values; negative: none.
int channel_of(int i, int h, int first) {
  int in_head = i % kMaxKeys, v = i - 2 * kMaxKeys, key_dim = p.delta.k_heads * p.delta.k_dim;
  if (v >= 0) return v < kColumns && first + v < p.delta.v_dim ? 2 * key_dim + h * p.delta.v_dim + first + v : -1;
  return in_head < p.delta.k_dim ? i / kMaxKeys * key_dim + key_head(p.delta, h) * p.delta.k_dim + in_head : -1;
}

void load_channel(int i, int c, uint64_t state, int position) {
  int n_taps = p.conv.n_taps;
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - n_taps), at = position - (kMaxTaps - 1 - j);
    bool is_there = c >= 0 && tap >= 0;
    taps[i][j] = is_there ? Floats(p.conv.weight).at[c * n_taps + tap] : 0.0;
    inputs[i][j] = 0;
    if (j + 1 == kMaxTaps) {
      if (c >= 0) inputs[i][j] = Floats(p.conv.x).at[c];
    } else if (is_there && at >= 0) {
      inputs[i][j] = Floats(state).at[place_in_state(p.conv, at, c)];
    }
  }
}

float convolved(int i) {
  precise float sum = 0;
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) sum = fma(taps[i][j], inputs[i][j], sum);
  precise float y = sum * sigmoid(sum);
  return y;
}

// Of q (warp 0) and k (warp 1). REQUIRES: every thread of the workgroup calls.
void norm_keys() {
  int k_dim = p.delta.k_dim, base = min(warp_id(), 1) * kMaxKeys + lane_id() * 8;
  Eight x = Eight(vec4(0), vec4(0));
  [[unroll]] for (int i = 0; i < 4; ++i) {
    if (lane_id() * 8 + i < k_dim) x.a[i] = channel_values[base + i];
    if (lane_id() * 8 + 4 + i < k_dim) x.b[i] = channel_values[base + 4 + i];
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
  touch_params();
  Delta d = p.delta;
  int h = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * kColumns, column = first + thread_id() / 8;
  bool is_inside = column < d.v_dim;
  int slot = Ints(step.slots).at[0], position = Ints(step.positions).at[0];
  uint64_t state = delta_state(d, slot, h), conv = conv_state(p.conv, slot);
  load_state(d, state, column, is_inside && position > 0);
  [[unroll]] for (int i = 0; i < kChannels; ++i) {
    load_channel(i, channel_of(i * kThreads + thread_id(), h, first), conv, position);
  }
  [[unroll]] for (int i = 0; i < kChannels; ++i) {
    int c = channel_of(i * kThreads + thread_id(), h, first);
    if (c < 0) continue;
    channel_values[i * kThreads + thread_id()] = convolved(i);
    Floats(conv).at[place_in_state(p.conv, position, c)] = inputs[i][kMaxTaps - 1];
  }
  barrier();
  norm_keys();
  [[unroll]] for (int i = 0; i < N; ++i) {
    queries[i] = has_row(d, i) ? channel_values[i * 8 + part_id()] : 0.0;
    keys[i] = has_row(d, i) ? channel_values[kMaxKeys + i * 8 + part_id()] : 0.0;
  }
  float y = take_token(d, 0, h, is_inside ? channel_values[2 * kMaxKeys + thread_id() / 8] : 0.0);
  if (part_id() == 0 && is_inside) Floats(d.out_).at[h * d.v_dim + column] = y;
  store_state(d, state, column, is_inside);
}
