// A gated delta rule layer in steps of several rows without chunks: short convolution, norms of q and k, gated delta rule, token by
// token. A workgroup has 128 columns of a value head of a sequence, usually all. Eight threads share four columns, so that the
// state is read and written as 16 bytes per thread; sums are those of delta_rule.glsl. The state and the convolution's weights
// are loaded before the wait. The convolution's state is updated by delta_finish.comp, because workgroups of value heads that
// share a key head read it too. Grid: tiles of columns of each value head, sequences.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "short_conv.glsl"
#include "delta_rule.glsl"
#include "counter_sync.glsl"

layout(constant_id = kSpecDeltaDecodeTaps) const int kTaps = 4;
layout(constant_id = kSpecDeltaValueDim) const int kValueDim = 128;  // v_dim
// k_dim is 8 N, workgroups have kColumns columns, and rows of the state begin at multiples of 16 bytes.
const bool kHasExactDims = kUnalignedRows == 0;

const int kColumns = kDeltaLayerColumns, kGroupTokens = 4;  // tokens whose q, k and v are in shared memory
const int kWidth = 2 * kPaddedKeyDim + kColumns;  // channels of the workgroup: q, k, and v of its columns
const int kChannels = (kWidth + kThreads - 1) / kThreads;  // per thread
layout(set = 0, binding = 0, scalar) uniform Block { DeltaDecodeParams p; };

shared vec4 values[kGroupTokens * kWidth / 4];
shared vec2 token_gates[kGroupTokens];  // decay, beta
shared int token_slots[kGroupTokens];   // of the state after each token

vec4 state_rows[kVec4s][4];  // four columns of the rows first_row(i) + c
int column;                  // the first of them

// ---- state ----

bool is_state_row(int i, int c) { return kHasExactDims || first_row(i) + c < p.delta.k_dim; }

// Bytes before the thread's columns of a state row; unsigned, because an address is then a scalar and one register.
uint row_offset(int i, int c) { return uint(4 * (first_row(0) * kValueDim + column)) + uint(4 * (i * 32 + c) * kValueDim); }

void load_columns(uint64_t state, bool is_new_sequence) {
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      vec4 x = vec4(0);
      if (!is_new_sequence && is_state_row(i, c)) {
        if (kHasExactDims) {
          x = FloatQuads(state + uint64_t(row_offset(i, c))).data[0];
        } else {
          [[unroll]] for (int k = 0; k < 4; ++k) {
            if (column + k < kValueDim) x[k] = Floats(state + uint64_t(row_offset(i, c))).data[k];
          }
        }
      }
      state_rows[i][c] = x;
    }
  }
}
void store_columns(uint64_t state) {
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      if (!is_state_row(i, c)) continue;
      if (kHasExactDims) {
        FloatQuads(state + uint64_t(row_offset(i, c))).data[0] = state_rows[i][c];
      } else {
        [[unroll]] for (int k = 0; k < 4; ++k) {
          if (column + k < kValueDim) Floats(state + uint64_t(row_offset(i, c))).data[k] = state_rows[i][c][k];
        }
      }
    }
  }
}

// ---- convolution ----

int channel_ids[kChannels];  // -1: none
const int kPast = kTaps > 1 ? kTaps - 1 : 1;
float tap_weights[kChannels][kTaps], windows[kChannels][kPast];  // windows: inputs before the token, the newest last
float inputs[kChannels][kGroupTokens];

void load_channels(uint64_t state, int position, int h, int first) {
  DeltaParams d = p.delta;
  int key_dim = d.k_heads * d.k_dim;
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    int i = k * kThreads + thread_id(), in_head = i % kPaddedKeyDim, v = i - 2 * kPaddedKeyDim, c = -1;
    if (v >= 0) {
      if (v < kColumns && first + v < kValueDim) c = 2 * key_dim + h * kValueDim + first + v;
    } else if (in_head < d.k_dim) {
      c = i / kPaddedKeyDim * key_dim + key_head(d, h) * d.k_dim + in_head;
    }
    channel_ids[k] = c;
    [[unroll]] for (int tap = 0; tap < kTaps; ++tap) {
      tap_weights[k][tap] = c >= 0 ? Floats(p.conv.weight).data[c * kTaps + tap] : 0.0;
    }
    [[unroll]] for (int tap = 0; tap < kPast; ++tap) {
      int past = position - (kPast - tap);
      windows[k][tap] = c >= 0 && past >= 0 ? Floats(state).data[state_index(p.conv, past, c)] : 0.0;
    }
  }
}

void load_inputs(int first, int n) {
  [[unroll]] for (int k = 0; k < kChannels; ++k) {
    [[unroll]] for (int t = 0; t < kGroupTokens; ++t) {
      inputs[k][t] = 0;
      if (t < n && channel_ids[k] >= 0) {
        inputs[k][t] = CoherentFloats(p.conv.x).data[(first + t) * p.conv.n_channels + channel_ids[k]];
      }
    }
  }
}

void convolve(int n) {
  [[unroll]] for (int t = 0; t < kGroupTokens; ++t) {
    if (t >= n) break;
    [[unroll]] for (int k = 0; k < kChannels; ++k) {
      precise float sum = 0;
      [[unroll]] for (int tap = 0; tap + 1 < kTaps; ++tap) sum = fma(tap_weights[k][tap], windows[k][tap], sum);
      sum = fma(tap_weights[k][kTaps - 1], inputs[k][t], sum);
      [[unroll]] for (int tap = 0; tap + 1 < kPast; ++tap) windows[k][tap] = windows[k][tap + 1];
      windows[k][kPast - 1] = inputs[k][t];
      precise float y = sum * sigmoid(sum);
      int i = k * kThreads + thread_id();
      if (i < kWidth) values[(t * kWidth + i) / 4][i % 4] = channel_ids[k] >= 0 ? y : 0.0;
    }
  }
}

// L2 norms of q and k of n tokens, one warp per head, in the order of norm.comp. REQUIRES: every thread of the workgroup calls.
void norm_heads(int n) {
  for (int first = 0; first < 2 * n; first += kWarps) {
    int r = first + warp_id();
    bool has_head = r < 2 * n && lane_id() * 8 < kPaddedKeyDim;
    int at = has_head ? (r / 2 * kWidth + r % 2 * kPaddedKeyDim) / 4 + 2 * lane_id() : 0;
    Vec8 x = Vec8(vec4(0), vec4(0));
    if (has_head) x = Vec8(values[at], values[at + 1]);
    precise float factor = 1.0 / max(sqrt(clustered_sum(sum_squares(x, 0), 32)), p.eps);
    x = apply_norm(x, factor, 0ul, 0, p.delta.k_dim);
    if (has_head) {
      values[at] = x.a;
      values[at + 1] = x.b;
    }
  }
}

// ---- delta rule ----

// Sums over the rows of the thread's columns, in the order of column_sum(). REQUIRES: every thread of the workgroup calls.
vec4 column_sums(vec4 x[4]) {
  precise vec4 sums = (x[0] + x[1]) + (x[2] + x[3]);
  [[unroll]] for (int k = 0; k < 4; ++k) sums[k] = clustered_sum(sums[k], 8);
  return sums;
}

// REQUIRES: every thread of the workgroup calls.
vec4 update(int t) {
  vec4 predictions[4], results[4];
  vec2 gates = token_gates[t];
  int q = (t * kWidth) / 4 + lane_in_column(), key = q + kPaddedKeyDim / 4;  // of rows first_row(0) ..
  [[unroll]] for (int c = 0; c < 4; ++c) predictions[c] = results[c] = vec4(0);
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    vec4 keys_i = values[key + 8 * i];
    [[unroll]] for (int c = 0; c < 4; ++c) {
      precise vec4 decayed = state_rows[i][c] * gates.x;
      precise vec4 prediction = fma(decayed, vec4(keys_i[c]), predictions[c]);
      state_rows[i][c] = decayed;
      predictions[c] = prediction;
    }
  }
  vec4 v = values[(t * kWidth + 2 * kPaddedKeyDim) / 4 + thread_id() / 8];
  precise vec4 delta = gates.y * (v - column_sums(predictions));
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    vec4 keys_i = values[key + 8 * i], queries_i = values[q + 8 * i];
    [[unroll]] for (int c = 0; c < 4; ++c) {
      precise vec4 next = fma(vec4(keys_i[c]), delta, state_rows[i][c]);
      precise vec4 result = fma(next, vec4(queries_i[c]), results[c]);
      state_rows[i][c] = next;
      results[c] = result;
    }
  }
  precise vec4 y = column_sums(results) * p.delta.q_scale;
  return y;
}

void write_output(int token, int h, vec4 y) {
  int at = (token * p.delta.v_heads + h) * kValueDim + column;
  if (lane_in_column() != 0) return;
  if (kHasExactDims) {
    CoherentQuads(p.delta.out_).data[at / 4] = y;
    return;
  }
  [[unroll]] for (int k = 0; k < 4; ++k) {
    if (column + k < kValueDim) CoherentFloats(p.delta.out_).data[at + k] = y[k];
  }
}

void scan_sequence() {
  DeltaParams d = p.delta;
  int n_tiles = (kValueDim + kColumns - 1) / kColumns, h = int(gl_WorkGroupID.x) / n_tiles;
  int first = int(gl_WorkGroupID.x) % n_tiles * kColumns, seq = int(gl_WorkGroupID.y);
  if (seq >= step_count(kSeqs)) return;
  int begin = Ints(step.seq_begin).data[seq], end = Ints(step.seq_begin).data[seq + 1];
  if (begin >= end) return;
  int slot = Ints(step.slots).data[seq], position = Ints(step.positions).data[begin];
  column = first + thread_id() / 8 * 4;
  load_columns(delta_state(d, slot, h), position == 0);
  load_channels(conv_state(p.conv, slot), position, h, first);
  float dt_bias = Floats(d.dt_bias).data[h], a = Floats(d.a).data[h];
  wait_producers(p.sync);
  for (int t = begin; t < end; t += kGroupTokens) {
    int n = min(kGroupTokens, end - t);
    load_inputs(t, n);
    if (thread_id() < n) {
      int gate = (t + thread_id()) * d.v_heads + h;
      Gates gates = gates_of(CoherentFloats(d.alpha).data[gate], CoherentFloats(d.beta).data[gate], dt_bias, a);
      token_gates[thread_id()] = vec2(gates.decay, gates.beta);
      token_slots[thread_id()] = Ints(step.row_slots).data[t + thread_id()];
    }
    convolve(n);
    barrier();
    norm_heads(n);
    barrier();
    for (int i = 0; i < n; ++i) {
      write_output(t + i, h, update(i));
      if (token_slots[i] >= 0) store_columns(delta_state(d, token_slots[i], h));
    }
    barrier();  // all have read the group
  }
}

void main() {
  scan_sequence();
  signal_done(p.sync);
}
