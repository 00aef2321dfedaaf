// Gated delta rule, token by token, for the tokens of a sequence outside of complete chunks. S stays in registers throughout.
// Keys, queries, values and gates of a tile of tokens are staged in shared memory while the next tile is prefetched; there
// the heads of keys and queries are normed (kNorms). Grid: column tiles, value heads, sequences.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "delta_chunks.glsl"
#include "counter_sync.glsl"

const int kColumns = 32, kTileTokens = 2048 / kPaddedKeyDim;  // tokens per tile
const int kKeyVec4s = kTileTokens * kPaddedKeyDim / 4, kLoads = kKeyVec4s / kThreads;
const int kReducedTokens = 2;  // tokens whose outputs are reduced together
const int kValueLoads = (kTileTokens * kColumns + kThreads - 1) / kThreads;

shared vec4 key_tile[kKeyVec4s], query_tile[kKeyVec4s];
shared float value_tile[kTileTokens * kColumns];  // values; each is overwritten by its token's output
shared vec2 gate_tile[kTileTokens];

vec4 keys_prefetch[kLoads], queries_prefetch[kLoads];
float values_prefetch[kValueLoads];
vec2 gates_prefetch;

vec4 load_head_vec4(uint64_t row, int offset, int width) {
  if ((width & 3) == 0) return offset < width ? CoherentQuads(row).data[offset / 4] : vec4(0);
  vec4 x = vec4(0);
  [[unroll]] for (int c = 0; c < 4; ++c) {
    if (offset + c < width) x[c] = CoherentFloats(row).data[offset + c];
  }
  return x;
}

// Prefetches the tile that begins at token t; tokens past the end repeat the last.
void load_tokens(int t, int end, int h, int first_column) {
  DeltaParams d = p.delta;
  [[unroll]] for (int i = 0; i < kLoads; ++i) {
    int item = (i * kThreads + thread_id()) * 4, token = min(t + item / kPaddedKeyDim, end - 1);
    keys_prefetch[i] = load_head_vec4(head_row(d.k, token, h), item % kPaddedKeyDim, d.k_dim);
    queries_prefetch[i] = load_head_vec4(head_row(d.q, token, h), item % kPaddedKeyDim, d.k_dim);
  }
  [[unroll]] for (int i = 0; i < kValueLoads; ++i) {
    int item = i * kThreads + thread_id(), token = min(t + item / kColumns, end - 1), column = first_column + item % kColumns;
    values_prefetch[i] = column < d.v_dim ? CoherentFloats(d.v).data[(token * d.v_heads + h) * d.v_dim + column] : 0.0;
  }
  int gate = min(t + min(thread_id(), kTileTokens - 1), end - 1) * d.v_heads + h;
  gates_prefetch = vec2(CoherentFloats(d.alpha).data[gate], CoherentFloats(d.beta).data[gate]);
}

void store_tokens(float dt_bias, float a) {
  [[unroll]] for (int i = 0; i < kLoads; ++i) {
    key_tile[i * kThreads + thread_id()] = keys_prefetch[i];
    query_tile[i * kThreads + thread_id()] = queries_prefetch[i];
  }
  [[unroll]] for (int i = 0; i < kValueLoads; ++i) {
    int item = i * kThreads + thread_id();
    if (item < kTileTokens * kColumns) value_tile[item] = values_prefetch[i];
  }
  if (thread_id() < kTileTokens) {
    Gates gates = gates_of(gates_prefetch.x, gates_prefetch.y, dt_bias, a);
    gate_tile[thread_id()] = vec2(gates.decay, gates.beta);
  }
}

// Processes tokens i .. i + n - 1 of the tile. Their outputs are reduced together, off the critical path.
void scan_tokens(int i, const int n, int column_in_tile) {
  vec4 partial_outputs[kReducedTokens];
  [[unroll]] for (int t = 0; t < kReducedTokens; ++t) {
    if (t >= n) break;
    [[unroll]] for (int j = 0; j < kVec4s; ++j) {
      keys[j] = key_tile[((i + t) * kPaddedKeyDim + first_row(j)) / 4];
      queries[j] = query_tile[((i + t) * kPaddedKeyDim + first_row(j)) / 4];
    }
    vec2 gates = gate_tile[i + t];
    partial_outputs[t] = delta_step(value_tile[(i + t) * kColumns + column_in_tile], Gates(gates.x, gates.y));
  }
  [[unroll]] for (int t = 0; t < kReducedTokens; ++t) {
    if (t >= n) break;
    float y = sum_and_scale(p.delta, partial_outputs[t]);
    if (lane_in_column() == 0) value_tile[(i + t) * kColumns + column_in_tile] = y;
  }
}

void write_tokens(int t, int end, int h, int first_column) {
  for (int i = thread_id(); i < kTileTokens * kColumns; i += kThreads) {
    int token = t + i / kColumns, column = first_column + i % kColumns;
    if (token < end && column < p.delta.v_dim) {
      CoherentFloats(p.delta.out_).data[(token * p.delta.v_heads + h) * p.delta.v_dim + column] = value_tile[i];
    }
  }
}

void scan_sequence() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), first_column = int(gl_WorkGroupID.x) * kColumns;
  if (seq >= step_count(kSeqs)) return;
  SequenceRange range = sequence_range(seq);
  int begin = range.begin, end = range.end;
  if (p.prepared != 0ul && p.part == kBeforeChunks && range.n_chunks > 0) end = range.first_chunk_token;
  if (p.part == kAfterChunks) begin = range.n_chunks > 0 ? range.first_chunk_token + range.n_chunks * kChunk : end;
  if (begin >= end) return;
  DeltaParams d = p.delta;
  int column_in_tile = thread_id() / 8, column = first_column + column_in_tile;
  bool is_in_bounds = column < d.v_dim;
  bool has_row_slots = range.end - range.begin > 1 && range.end - range.begin <= kMaxVerificationRows;
  uint64_t state = delta_state(d, Ints(step.slots).data[seq], h);
  load_state(d, state, column, is_in_bounds && Ints(step.positions).data[begin] > 0);
  wait_producers(p.sync);
  load_tokens(begin, end, h, first_column);
  float dt_bias = Floats(d.dt_bias).data[h], a = Floats(d.a).data[h];
  for (int t = begin; t < end; t += kTileTokens) {
    store_tokens(dt_bias, a);
    barrier();
    if (t + kTileTokens < end) load_tokens(t + kTileTokens, end, h, first_column);
    int n_tokens = min(kTileTokens, end - t);
    int i = 0;
    for (; !has_row_slots && i + kReducedTokens <= n_tokens; i += kReducedTokens) {
      scan_tokens(i, kReducedTokens, column_in_tile);
    }
    for (; i < n_tokens; ++i) {
      scan_tokens(i, 1, column_in_tile);
      int slot = has_row_slots ? Ints(step.row_slots).data[t + i] : -1;
      if (slot >= 0) store_state(d, delta_state(d, slot, h), column, is_in_bounds);
    }
    barrier();
    write_tokens(t, end, h, first_column);
    barrier();
  }
  if (!has_row_slots) store_state(d, state, column, is_in_bounds);
}

void main() {
  scan_sequence();
  signal_done(p.sync);
}
