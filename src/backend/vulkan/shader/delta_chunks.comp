// Gated delta rule, chunked scan: advances the state from chunk to chunk; see delta_chunks.glsl. A workgroup has kColumns
// columns of a head's state; the other operand is staged through shared memory in slices, with two slices prefetched. Grid:
// column tiles, value heads, sequences. REQUIRES: k_dim <= 128.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "delta_chunks.glsl"
layout(constant_id = kSpecDeltaChunkColumns) const int kColumns = 32;  // 16 or 32

const int kRows = kColumns / 8, kStateRows = kColumns / 4;  // tokens and state rows per thread; each thread has two columns
const int kColumnPairs = kColumns / 2;  // one per thread of a row
const int kMaxKeyDim = kMaxDeltaDim, kSlice = 16, kSliceTokens = 2 * kChunk * kSlice / kMaxKeyDim;
const int kSliceBufferVec4s = 2 * kChunk * kSlice / 4;  // two slices of 16 dimensions of every token, or the keys of 16 tokens

shared vec4 slices[2 * kSliceBufferVec4s];
shared vec2 state[kMaxKeyDim * kColumnPairs], updates[kChunk * kColumnPairs];  // updates: u
shared float decay_to_end[kChunk];                                       // G_last / G_t

int slice_buffer = 0;
vec4 even[2], odd[2];  // prefetched slices

int column_pair() { return thread_id() % kColumnPairs; }
int first_token() { return thread_id() / kColumnPairs * kRows; }
int first_state_row() { return thread_id() / kColumnPairs * kStateRows; }

// XOR swizzle: neighboring groups of tokens fall into different banks.
int slice_index(int operand, int row, int vec4_idx) {
  return slice_buffer + operand * (kSliceBufferVec4s / 2) + row * 4 + (vec4_idx ^ row / kRows % 4);
}

vec4 load_row_vec4(uint64_t row, int slice, int width) { return load_vec4(row, slice * kSlice + thread_id() % 4 * 4, width); }

// Slice i of W and of the queries.
void fetch_keys_and_queries(Prepared from, int first, int h, int i, out vec4 to[2]) {
  int row = thread_id() / 4, k_dim = p.delta.k_dim;
  to[0] = load_row_vec4(from.keys + uint64_t(row * k_dim) * 4ul, i, k_dim);
  to[1] = load_row_vec4(head_row(p.delta.q, first + row, h), i, k_dim);
}
void fetch_weights(Prepared from, int i, out vec4 to[2]) {
  uint64_t row = from.weights + uint64_t(thread_id() / 4 * kChunk) * 4ul;
  to[0] = load_row_vec4(row, 2 * i, kChunk);
  to[1] = load_row_vec4(row, 2 * i + 1, kChunk);
}
void fetch_keys(int first, int h, int i, out vec4 to[2]) {
  [[unroll]] for (int n = 0; n < 2; ++n) {
    int item = n * kThreads + thread_id(), token = first + i * kSliceTokens + item / (kMaxKeyDim / 4);
    to[n] = load_vec4(head_row(p.delta.k, token, h), item % (kMaxKeyDim / 4) * 4, p.delta.k_dim);
  }
}
// Publishes prefetched data to the workgroup.
void store_rows(vec4 fetched[2]) {
  slice_buffer ^= kSliceBufferVec4s;
  [[unroll]] for (int i = 0; i < 2; ++i) slices[slice_index(i, thread_id() / 4, thread_id() % 4)] = fetched[i];
  barrier();
}
void store_keys(vec4 fetched[2]) {
  slice_buffer ^= kSliceBufferVec4s;
  [[unroll]] for (int n = 0; n < 2; ++n) slices[slice_buffer + n * kThreads + thread_id()] = fetched[n];
  barrier();
}

vec2 sums[kRows], state_sums[kRows];  // of the thread's tokens

// Accumulates 16 state rows into sums (W S) and state_sums (S^T q).
void multiply_state(int i) {
  [[unroll]] for (int vec4_idx = 0; vec4_idx < 4; ++vec4_idx) {
    vec2 columns[4];
    [[unroll]] for (int c = 0; c < 4; ++c) columns[c] = state[(i * kSlice + vec4_idx * 4 + c) * kColumnPairs + column_pair()];
    [[unroll]] for (int r = 0; r < kRows; ++r) {
      vec4 key = slices[slice_index(0, first_token() + r, vec4_idx)], query = slices[slice_index(1, first_token() + r, vec4_idx)];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(key[c]), columns[c], sums[r]);
        precise vec2 next_state_sum = fma(vec2(query[c]), columns[c], state_sums[r]);
        sums[r] = next;
        state_sums[r] = next_state_sum;
      }
    }
  }
}
// Accumulates 32 tokens of u into sums.
void multiply_updates(int i) {
  [[unroll]] for (int vec4_idx = 0; vec4_idx < 8; ++vec4_idx) {
    vec2 columns[4];
    [[unroll]] for (int c = 0; c < 4; ++c) {
      columns[c] = updates[(i * 2 * kSlice + vec4_idx * 4 + c) * kColumnPairs + column_pair()];
    }
    [[unroll]] for (int r = 0; r < kRows; ++r) {
      vec4 weight = slices[slice_index(vec4_idx / 4, first_token() + r, vec4_idx % 4)];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(weight[c]), columns[c], sums[r]);
        sums[r] = next;
      }
    }
  }
}

vec2 state_update[kStateRows];  // the chunk's state update: the thread's part

void multiply_keys(int i) {
  [[unroll]] for (int t = 0; t < kSliceTokens; ++t) {
    precise vec2 u = updates[(i * kSliceTokens + t) * kColumnPairs + column_pair()] * decay_to_end[i * kSliceTokens + t];
    [[unroll]] for (int r = 0; r < kStateRows; r += 4) {
      vec4 keys = slices[slice_buffer + (t * kMaxKeyDim + first_state_row() + r) / 4];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(keys[c]), u, state_update[r + c]);
        state_update[r + c] = next;
      }
    }
  }
}

void write_results(int first, int h, int column, float factors[kRows]) {
  DeltaParams d = p.delta;
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise vec2 y = fma(vec2(factors[r]), state_sums[r], sums[r]);
    int offset = ((first + first_token() + r) * d.v_heads + h) * d.v_dim + column;
    if (column < d.v_dim) Floats(d.out_).data[offset] = y.x;
    if (column + 1 < d.v_dim) Floats(d.out_).data[offset + 1] = y.y;
  }
}

// u = U - W S for every token, and S^T q.
void compute_updates(Prepared from, int first, int h, int column) {
  DeltaParams d = p.delta;
  int n_slices = (d.k_dim + 2 * kSlice - 1) / (2 * kSlice) * 2;
  vec2 values[kRows];
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    int offset = (first_token() + r) * d.v_dim + column;
    values[r].x = column < d.v_dim ? Floats(from.values).data[offset] : 0.0;
    values[r].y = column + 1 < d.v_dim ? Floats(from.values).data[offset + 1] : 0.0;
    sums[r] = state_sums[r] = vec2(0);
  }
  for (int i = 0; i < n_slices; i += 2) {
    bool is_last_slice = i + 2 >= n_slices;
    store_rows(even);
    if (is_last_slice) {
      fetch_weights(from, 0, even);
    } else {
      fetch_keys_and_queries(from, first, h, i + 2, even);
    }
    multiply_state(i);
    store_rows(odd);
    if (is_last_slice) {
      fetch_weights(from, 1, odd);
    } else {
      fetch_keys_and_queries(from, first, h, i + 3, odd);
    }
    multiply_state(i + 1);
  }
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise vec2 u = values[r] - sums[r];
    updates[(first_token() + r) * kColumnPairs + column_pair()] = u;
    sums[r] = vec2(0);
  }
}

// REQUIRES: the first two slices are prefetched. On return those of the next chunk are, if has_next.
void scan_chunk(int chunk, int first, int h, int column, bool has_next) {
  Prepared from = prepared_of(chunk, h), next = prepared_of(chunk + 1, h);
  float factors[kRows], last = Floats(from.log_decays).data[kChunk - 1];
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise float factor = exp(Floats(from.log_decays).data[first_token() + r]) * p.delta.q_scale;
    factors[r] = factor;
  }
  precise float token_decay = exp(last - Floats(from.log_decays).data[thread_id() % kChunk]);
  compute_updates(from, first, h, column);
  if (thread_id() < kChunk) decay_to_end[thread_id()] = token_decay;
  store_rows(even);
  fetch_keys(first, h, 0, even);
  multiply_updates(0);
  store_rows(odd);
  fetch_keys(first, h, 1, odd);
  multiply_updates(1);
  write_results(first, h, column, factors);
  [[unroll]] for (int r = 0; r < kStateRows; ++r) state_update[r] = vec2(0);
  store_keys(even);
  fetch_keys(first, h, 2, even);
  multiply_keys(0);
  store_keys(odd);
  fetch_keys(first, h, 3, odd);
  multiply_keys(1);
  store_keys(even);
  if (has_next) fetch_keys_and_queries(next, first + kChunk, h, 0, even);
  multiply_keys(2);
  store_keys(odd);
  if (has_next) fetch_keys_and_queries(next, first + kChunk, h, 1, odd);
  multiply_keys(3);
  precise float decay = exp(last);
  [[unroll]] for (int r = 0; r < kStateRows; ++r) {
    int offset = (first_state_row() + r) * kColumnPairs + column_pair();
    precise vec2 value = fma(vec2(decay), state[offset], state_update[r]);
    state[offset] = value;
  }
}

void main() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), first_column = int(gl_WorkGroupID.x) * kColumns;
  if (seq >= step_count(kSeqs)) return;
  SequenceRange range = sequence_range(seq);
  if (range.n_chunks == 0) return;
  int first_chunk = 0;
  for (int s = 0; s < seq; ++s) first_chunk += sequence_range(s).n_chunks;
  DeltaParams d = p.delta;
  uint64_t from = delta_state(d, Ints(step.slots).data[seq], h);
  bool is_fresh = Ints(step.positions).data[range.first_chunk_token] == 0;
  fetch_keys_and_queries(prepared_of(first_chunk, h), range.first_chunk_token, h, 0, even);
  fetch_keys_and_queries(prepared_of(first_chunk, h), range.first_chunk_token, h, 1, odd);
  for (int i = thread_id(); i < kMaxKeyDim * kColumns; i += kThreads) {
    int row = i / kColumns, column = first_column + i % kColumns;
    bool is_valid = !is_fresh && row < d.k_dim && column < d.v_dim;
    state[i / 2][i % 2] = is_valid ? Floats(from).data[row * d.v_dim + column] : 0.0;
  }
  for (int c = 0; c < range.n_chunks; ++c) {
    scan_chunk(first_chunk + c, range.first_chunk_token + c * kChunk, h, first_column + 2 * column_pair(),
               c + 1 < range.n_chunks);
  }
  barrier();
  for (int i = thread_id(); i < d.k_dim * kColumns; i += kThreads) {
    int row = i / kColumns, column = first_column + i % kColumns;
    if (column < d.v_dim) Floats(from).data[row * d.v_dim + column] = state[i / 2][i % 2];
  }
}
