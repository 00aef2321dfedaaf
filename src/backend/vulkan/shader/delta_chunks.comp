// The gated delta rule from chunk to chunk: delta_chunks.glsl. A workgroup has kColumns columns of a head's state; what it
// is multiplied with comes in slices by way of shared memory, the next two on their way meanwhile. Grid: column tiles, value
// heads, sequences. REQUIRES: k_dim <= 128.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "delta_chunks.glsl"
layout(constant_id = 2) const int kColumns = 32;  // 16 or 32

const int kRows = kColumns / 8, kStateRows = kColumns / 4;  // tokens, and rows of the state, that a thread has; two columns
const int kAcross = kColumns / 2;                           // threads side by side
const int kMostKeys = 128, kSlice = 16, kSliceTokens = 2 * kChunk * kSlice / kMostKeys;
const int kRoomFours = 2 * kChunk * kSlice / 4;  // two slices of 16 numbers of each token, or 16 tokens' keys

shared vec4 room[2 * kRoomFours];
shared vec2 state[kMostKeys * kAcross], added[kChunk * kAcross];  // added: u
shared float falls[kChunk];                                       // G_last / G_t

int flip = 0;
vec4 even[2], odd[2];  // on their way

int pair() { return thread_id() % kAcross; }
int first_token() { return thread_id() / kAcross * kRows; }
int first_state_row() { return thread_id() / kAcross * kStateRows; }

// A slice lies with its fours turned, so that neighbouring groups of tokens are in different banks.
int place(int slot, int row, int four) { return flip + slot * (kRoomFours / 2) + row * 4 + (four ^ row / kRows % 4); }

vec4 row_four(uint64_t row, int slice, int width) { return load_four(row, slice * kSlice + thread_id() % 4 * 4, width); }

// Slice i of W and of the queries.
void fetch_keys_and_queries(Prepared from, int first, int h, int i, out vec4 to[2]) {
  int row = thread_id() / 4, k_dim = p.delta.k_dim;
  to[0] = row_four(from.keys + uint64_t(row * k_dim) * 4ul, i, k_dim);
  to[1] = row_four(head_row(p.delta.q, first + row, h), i, k_dim);
}
void fetch_weights(Prepared from, int i, out vec4 to[2]) {
  uint64_t row = from.weights + uint64_t(thread_id() / 4 * kChunk) * 4ul;
  to[0] = row_four(row, 2 * i, kChunk);
  to[1] = row_four(row, 2 * i + 1, kChunk);
}
void fetch_keys(int first, int h, int i, out vec4 to[2]) {
  [[unroll]] for (int n = 0; n < 2; ++n) {
    int at = n * kThreads + thread_id(), token = first + i * kSliceTokens + at / (kMostKeys / 4);
    to[n] = load_four(head_row(p.delta.k, token, h), at % (kMostKeys / 4) * 4, p.delta.k_dim);
  }
}
// What was fetched, for the whole workgroup.
void put_rows(vec4 fetched[2]) {
  flip ^= kRoomFours;
  [[unroll]] for (int slot = 0; slot < 2; ++slot) room[place(slot, thread_id() / 4, thread_id() % 4)] = fetched[slot];
  barrier();
}
void put_keys(vec4 fetched[2]) {
  flip ^= kRoomFours;
  [[unroll]] for (int n = 0; n < 2; ++n) room[flip + n * kThreads + thread_id()] = fetched[n];
  barrier();
}

vec2 sums[kRows], of_state[kRows];  // of the thread's tokens

// sums and of_state go on by 16 rows of the state.
void multiply_state(int i) {
  [[unroll]] for (int four = 0; four < 4; ++four) {
    vec2 columns[4];
    [[unroll]] for (int c = 0; c < 4; ++c) columns[c] = state[(i * kSlice + four * 4 + c) * kAcross + pair()];
    [[unroll]] for (int r = 0; r < kRows; ++r) {
      vec4 key = room[place(0, first_token() + r, four)], query = room[place(1, first_token() + r, four)];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(key[c]), columns[c], sums[r]);
        precise vec2 next_of_state = fma(vec2(query[c]), columns[c], of_state[r]);
        sums[r] = next;
        of_state[r] = next_of_state;
      }
    }
  }
}
// sums go on by 32 tokens.
void multiply_added(int i) {
  [[unroll]] for (int four = 0; four < 8; ++four) {
    vec2 columns[4];
    [[unroll]] for (int c = 0; c < 4; ++c) columns[c] = added[(i * 2 * kSlice + four * 4 + c) * kAcross + pair()];
    [[unroll]] for (int r = 0; r < kRows; ++r) {
      vec4 weight = room[place(four / 4, first_token() + r, four % 4)];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(weight[c]), columns[c], sums[r]);
        sums[r] = next;
      }
    }
  }
}

vec2 moved[kStateRows];  // what the chunk adds to the thread's part of the state

void multiply_keys(int i) {
  [[unroll]] for (int t = 0; t < kSliceTokens; ++t) {
    precise vec2 u = added[(i * kSliceTokens + t) * kAcross + pair()] * falls[i * kSliceTokens + t];
    [[unroll]] for (int r = 0; r < kStateRows; r += 4) {
      vec4 keys = room[flip + (t * kMostKeys + first_state_row() + r) / 4];
      [[unroll]] for (int c = 0; c < 4; ++c) {
        precise vec2 next = fma(vec2(keys[c]), u, moved[r + c]);
        moved[r + c] = next;
      }
    }
  }
}

void write_results(int first, int h, int column, float factors[kRows]) {
  Delta d = p.delta;
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise vec2 y = fma(vec2(factors[r]), of_state[r], sums[r]);
    int at = ((first + first_token() + r) * d.v_heads + h) * d.v_dim + column;
    if (column < d.v_dim) Floats(d.out_).at[at] = y.x;
    if (column + 1 < d.v_dim) Floats(d.out_).at[at + 1] = y.y;
  }
}

// U and W at work: what each token adds, and what it sees of the state.
void find_added(Prepared from, int first, int h, int column) {
  Delta d = p.delta;
  int n_slices = (d.k_dim + 2 * kSlice - 1) / (2 * kSlice) * 2;
  vec2 values[kRows];
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    int at = (first_token() + r) * d.v_dim + column;
    values[r].x = column < d.v_dim ? Floats(from.values).at[at] : 0.0;
    values[r].y = column + 1 < d.v_dim ? Floats(from.values).at[at + 1] : 0.0;
    sums[r] = of_state[r] = vec2(0);
  }
  for (int i = 0; i < n_slices; i += 2) {
    bool is_last = i + 2 >= n_slices;
    put_rows(even);
    if (is_last) {
      fetch_weights(from, 0, even);
    } else {
      fetch_keys_and_queries(from, first, h, i + 2, even);
    }
    multiply_state(i);
    put_rows(odd);
    if (is_last) {
      fetch_weights(from, 1, odd);
    } else {
      fetch_keys_and_queries(from, first, h, i + 3, odd);
    }
    multiply_state(i + 1);
  }
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise vec2 u = values[r] - sums[r];
    added[(first_token() + r) * kAcross + pair()] = u;
    sums[r] = vec2(0);
  }
}

// REQUIRES: the first two slices are on their way. Those of the next chunk are afterwards, if there is one.
void take_chunk(int chunk, int first, int h, int column, bool has_next) {
  Prepared from = prepared_of(chunk, h), next = prepared_of(chunk + 1, h);
  float factors[kRows], last = Floats(from.logs).at[kChunk - 1];
  [[unroll]] for (int r = 0; r < kRows; ++r) {
    precise float factor = exp(Floats(from.logs).at[first_token() + r]) * p.delta.q_scale;
    factors[r] = factor;
  }
  precise float fall = exp(last - Floats(from.logs).at[thread_id() % kChunk]);
  find_added(from, first, h, column);
  if (thread_id() < kChunk) falls[thread_id()] = fall;
  put_rows(even);
  fetch_keys(first, h, 0, even);
  multiply_added(0);
  put_rows(odd);
  fetch_keys(first, h, 1, odd);
  multiply_added(1);
  write_results(first, h, column, factors);
  [[unroll]] for (int r = 0; r < kStateRows; ++r) moved[r] = vec2(0);
  put_keys(even);
  fetch_keys(first, h, 2, even);
  multiply_keys(0);
  put_keys(odd);
  fetch_keys(first, h, 3, odd);
  multiply_keys(1);
  put_keys(even);
  if (has_next) fetch_keys_and_queries(next, first + kChunk, h, 0, even);
  multiply_keys(2);
  put_keys(odd);
  if (has_next) fetch_keys_and_queries(next, first + kChunk, h, 1, odd);
  multiply_keys(3);
  precise float decay = exp(last);
  [[unroll]] for (int r = 0; r < kStateRows; ++r) {
    int at = (first_state_row() + r) * kAcross + pair();
    precise vec2 value = fma(vec2(decay), state[at], moved[r]);
    state[at] = value;
  }
}

void main() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), first_column = int(gl_WorkGroupID.x) * kColumns;
  if (seq >= step_count(kSeqs)) return;
  Run run = run_of(seq);
  if (run.n_chunks == 0) return;
  int first_chunk = 0;
  for (int s = 0; s < seq; ++s) first_chunk += run_of(s).n_chunks;
  Delta d = p.delta;
  uint64_t from = delta_state(d, Ints(step.slots).at[seq], h);
  bool is_fresh = Ints(step.positions).at[run.chunks] == 0;
  fetch_keys_and_queries(prepared_of(first_chunk, h), run.chunks, h, 0, even);
  fetch_keys_and_queries(prepared_of(first_chunk, h), run.chunks, h, 1, odd);
  for (int i = thread_id(); i < kMostKeys * kColumns; i += kThreads) {
    int row = i / kColumns, column = first_column + i % kColumns;
    bool is_there = !is_fresh && row < d.k_dim && column < d.v_dim;
    state[i / 2][i % 2] = is_there ? Floats(from).at[row * d.v_dim + column] : 0.0;
  }
  for (int c = 0; c < run.n_chunks; ++c) {
    take_chunk(first_chunk + c, run.chunks + c * kChunk, h, first_column + 2 * pair(), c + 1 < run.n_chunks);
  }
  barrier();
  for (int i = thread_id(); i < d.k_dim * kColumns; i += kThreads) {
    int row = i / kColumns, column = first_column + i % kColumns;
    if (column < d.v_dim) Floats(from).at[row * d.v_dim + column] = state[i / 2][i % 2];
  }
}
