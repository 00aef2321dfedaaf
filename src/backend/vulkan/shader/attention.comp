// Attention in float32, for every kind of cache and every device: attention.glsl. One thread per position finds scores, then
// a lane has four dimensions of the values.
#version 460
#include "attention.glsl"

const int kRound = N < 4 ? N : 4;  // rows whose partial sums there is room for
shared vec4 q_room[N * kKeyDim / 4];
shared vec4 scores[N * kChunkPositions / 4];
shared vec4 partial_room[kWarps * kRound * 32];
shared float result_room[N * kValueDim];

void keep_query(int r, int four, vec4 q) { q_room[r * (kKeyDim / 4) + four] = q; }
void begin_results() {
  for (int i = thread_id(); i < N * kValueDim; i += kThreads) result_room[i] = 0;
}

void score_block(uint64_t keys, int position, int block, inout float score[N]) {
  vec4 key[8];
  load_key_block(keys, kKeyDim, position % kPagePositions, block, key);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    [[unroll]] for (int r = 0; r < N; ++r) {
      vec4 q = q_room[r * (kKeyDim / 4) + block * 8 + i];
      precise float sum = fma(q.w, key[i].w, fma(q.z, key[i].z, fma(q.y, key[i].y, fma(q.x, key[i].x, score[r]))));
      score[r] = sum;
    }
  }
}

// Scores of one position per thread with every row; minus infinity where a row does not see it.
void score_chunk(int first, uint64_t keys) {
  int position = first + thread_id();
  bool is_seen = position >= tile_oldest && position <= last_position();
  float score[N];
  [[unroll]] for (int r = 0; r < N; ++r) score[r] = 0;
  if (is_seen) {
    if (N <= 2 && kKeyDim <= 128) {  // few rows: every load at once
      [[unroll]] for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    } else {
      for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    }
  }
  [[unroll]] for (int r = 0; r < N; ++r) {
    int newest = row_position(r);
    precise float s = score[r] * p.scale;
    if (p.softcap > 0) s = p.softcap * bounded_tanh(s / p.softcap);
    bool sees = is_seen && position <= newest && (p.window == 0 || position > newest - p.window);
    scores[(r * kChunkPositions + thread_id()) / 4][thread_id() % 4] = sees ? s : kLowest;
  }
}

// One warp per row: scores become weights, their largest and sum the chunk's.
void soften_chunk() {
  int r = warp_id(), base = min(r, N - 1) * kChunkPositions / 4;
  float largest = kLowest;
  precise float sum = 0;
  float weights[kChunkPositions / 32];
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    weights[i] = scores[base + i * 8 + lane_id() / 4][lane_id() % 4];
    largest = max(largest, weights[i]);
  }
  largest = lanes_max(largest, 32);
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    weights[i] = largest == kLowest ? 0.0 : exp(weights[i] - largest);
    sum = sum + weights[i];
  }
  float all = lanes_sum(sum, 32);
  if (r >= N) return;
  for (int i = 0; i < kChunkPositions / 32; ++i) scores[base + i * 8 + lane_id() / 4][lane_id() % 4] = weights[i];
  if (lane_id() == 0) chunk_room[r] = vec2(largest, all);
}

// Warp w sums the values of page w of the chunk for rows first_row .. + kRound - 1, four dimensions a lane, 128 at a
// time. Positions no row sees have no weight and are left out.
void weigh_values(uint64_t values, int first, int first_row, int first_dim) {
  int i = first_dim + lane_id() * 4, page_first = first + warp_id() * kPagePositions;
  vec4 sum[kRound];
  [[unroll]] for (int r = 0; r < kRound; ++r) sum[r] = vec4(0);
  int begin = max(page_first, tile_oldest), end = min(page_first + kPagePositions, last_position() + 1);
  if (begin < end && i < kValueDim) {
    [[unroll]] for (int j = 0; j < kPagePositions; j += 4) {
      vec4 v[4], weight[kRound];
      [[unroll]] for (int k = 0; k < 4; ++k) {
        int at = clamp(page_first + j + k, begin, end - 1);  // the nearest one's are read where nobody looks
        v[k] = load_value(values, kValueDim, at % kPagePositions, i);
      }
      [[unroll]] for (int r = 0; r < kRound; ++r) {
        weight[r] = scores[((first_row + r) * kChunkPositions + warp_id() * kPagePositions + j) / 4];
        [[unroll]] for (int k = 0; k < 4; ++k) {
          precise vec4 next = fma(vec4(weight[r][k]), v[k], sum[r]);
          sum[r] = next;
        }
      }
    }
  }
  [[unroll]] for (int r = 0; r < kRound; ++r) partial_room[(warp_id() * kRound + r) * 32 + lane_id()] = sum[r];
}

void attend_chunk(int chunk, int slot) {
  int first = chunk * kChunkPositions;
  uint64_t page = page_in_chunk(chunk);
  score_chunk(first, page);
  barrier();
  soften_chunk();
  barrier();
  for (int first_row = 0; first_row < N; first_row += kRound) {
    for (int first_dim = 0; first_dim < kValueDim; first_dim += 128) {
      weigh_values(page + uint64_t(p.kv.value_begin), first, first_row, first_dim);
      barrier();
      for (int i = thread_id(); i < kRound * 128; i += kThreads) {
        int in_round = i / 128, r = first_row + in_round, dim = first_dim + i % 128;
        if (r >= tile_rows || dim >= p.kv.v_dim) continue;
        int at = in_round * 32 + i % 128 / 4;
        precise float sum = partial_room[at][i % 4];
        for (int w = 1; w < kWarps; ++w) sum = sum + partial_room[at + w * kRound * 32][i % 4];
        if (is_divided) {
          PassedFloats(partial_of(row_token(r), row_head(r), slot)).at[dim] = sum;
        } else if (chunk_room[r].x != kLowest) {
          vec2 all = all_room[r];
          float keep, take;
          merge(all, chunk_room[r], keep, take);
          result_room[r * kValueDim + dim] = merged(result_room[r * kValueDim + dim], sum, keep, take);
        }
      }
      barrier();
    }
  }
  if (thread_id() < tile_rows) {
    int r = thread_id();
    if (is_divided) {
      write_partial_sums(r, slot);
    } else if (chunk_room[r].x != kLowest) {
      vec2 all = all_room[r];
      float keep, take;
      merge(all, chunk_room[r], keep, take);
      all_room[r] = all;
    }
  }
  barrier();
}

void write_results() {
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    write_result(r, dim, result_room[r * kValueDim + dim], all_room[r], gate_at(r, dim));
  }
}
