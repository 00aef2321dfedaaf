// Attention in float32 for every KV cache format and every device; see attention.glsl. Scores: one thread per position.
// Values: four dimensions per lane.
#version 460
#include "attention.glsl"

const int kRound = N < 4 ? N : 4;  // rows whose partial sums fit partial_sums
shared vec4 q_tile[N * kKeyDim / 4];
shared vec4 scores[N * kChunkPositions / 4];
shared vec4 partial_sums[kWarps * kRound * 32];
shared float result_tile[N * kValueDim];

void store_query(int r, int vec4_idx, vec4 q) { q_tile[r * (kKeyDim / 4) + vec4_idx] = q; }
void clear_accumulators() {
  for (int i = thread_id(); i < N * kValueDim; i += kThreads) result_tile[i] = 0;
}

void score_block(uint64_t keys, int position, int block, inout float score[N]) {
  vec4 key[8];
  load_key_block(keys, kKeyDim, position % kPageTokens, block, key);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    [[unroll]] for (int r = 0; r < N; ++r) {
      vec4 q = q_tile[r * (kKeyDim / 4) + block * 8 + i];
      precise float sum = fma(q.w, key[i].w, fma(q.z, key[i].z, fma(q.y, key[i].y, fma(q.x, key[i].x, score[r]))));
      score[r] = sum;
    }
  }
}

// Scores of one position per thread for every row; minus infinity where the mask hides the position.
void score_chunk(int first, uint64_t keys) {
  int position = first + thread_id();
  bool is_in_tile_range = position >= tile_oldest && position <= last_position();
  float score[N];
  [[unroll]] for (int r = 0; r < N; ++r) score[r] = 0;
  if (is_in_tile_range) {
    if (N <= 2 && kKeyDim <= 128) {  // few rows: all loads in flight together
      [[unroll]] for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    } else {
      for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    }
  }
  [[unroll]] for (int r = 0; r < N; ++r) {
    int newest = row_position(r);
    precise float s = score[r] * p.scale;
    if (p.softcap > 0) s = p.softcap * bounded_tanh(s / p.softcap);
    bool is_visible = is_in_tile_range && position <= newest && (p.window == 0 || position > newest - p.window);
    scores[(r * kChunkPositions + thread_id()) / 4][thread_id() % 4] = is_visible ? s : kNegInf;
  }
}

// Softmax of a chunk, one warp per row: scores (S) become probabilities (P), relative to the chunk's maximum; stores the row's
// maximum and sum.
void softmax_chunk() {
  int r = warp_id(), base = min(r, N - 1) * kChunkPositions / 4;
  float row_max = kNegInf;
  precise float sum = 0;
  float probs[kChunkPositions / 32];
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    probs[i] = scores[base + i * 8 + lane_id() / 4][lane_id() % 4];
    row_max = max(row_max, probs[i]);
  }
  row_max = clustered_max(row_max, 32);
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    probs[i] = row_max == kNegInf ? 0.0 : exp(probs[i] - row_max);
    sum = sum + probs[i];
  }
  float row_sum = clustered_sum(sum, 32);
  if (r >= N) return;
  for (int i = 0; i < kChunkPositions / 32; ++i) scores[base + i * 8 + lane_id() / 4][lane_id() % 4] = probs[i];
  if (lane_id() == 0) chunk_softmax[r] = vec2(row_max, row_sum);
}

// Warp w multiplies page w of the chunk by the probabilities of rows first_row .. + kRound - 1: four dimensions per lane, 128 at
// a time. Masked positions have probability zero and are skipped.
void multiply_values(uint64_t values, int first, int first_row, int first_dim) {
  int i = first_dim + lane_id() * 4, page_first = first + warp_id() * kPageTokens;
  vec4 sum[kRound];
  [[unroll]] for (int r = 0; r < kRound; ++r) sum[r] = vec4(0);
  int begin = max(page_first, tile_oldest), end = min(page_first + kPageTokens, last_position() + 1);
  if (begin < end && i < kValueDim) {
    [[unroll]] for (int j = 0; j < kPageTokens; j += 4) {
      vec4 v[4], prob[kRound];
      [[unroll]] for (int k = 0; k < 4; ++k) {
        int position = clamp(page_first + j + k, begin, end - 1);  // masked positions re-read the nearest valid one
        v[k] = load_value(values, kValueDim, position % kPageTokens, i);
      }
      [[unroll]] for (int r = 0; r < kRound; ++r) {
        prob[r] = scores[((first_row + r) * kChunkPositions + warp_id() * kPageTokens + j) / 4];
        [[unroll]] for (int k = 0; k < 4; ++k) {
          precise vec4 next = fma(vec4(prob[r][k]), v[k], sum[r]);
          sum[r] = next;
        }
      }
    }
  }
  [[unroll]] for (int r = 0; r < kRound; ++r) partial_sums[(warp_id() * kRound + r) * 32 + lane_id()] = sum[r];
}

void attend_chunk(int chunk, int partial_index) {
  int first = chunk * kChunkPositions;
  uint64_t page = page_in_chunk(chunk);
  score_chunk(first, page);
  barrier();
  softmax_chunk();
  barrier();
  for (int first_row = 0; first_row < N; first_row += kRound) {
    for (int first_dim = 0; first_dim < kValueDim; first_dim += 128) {
      multiply_values(page + uint64_t(p.kv.value_begin), first, first_row, first_dim);
      barrier();
      for (int i = thread_id(); i < kRound * 128; i += kThreads) {
        int in_round = i / 128, r = first_row + in_round, dim = first_dim + i % 128;
        if (r >= tile_rows || dim >= p.kv.v_dim) continue;
        int offset = in_round * 32 + i % 128 / 4;
        precise float sum = partial_sums[offset][i % 4];
        for (int w = 1; w < kWarps; ++w) sum = sum + partial_sums[offset + w * kRound * 32][i % 4];
        if (is_split_kv) {
          CoherentFloats(partial_of(row_head(r), partial_index)).data[dim] = sum;
        } else if (chunk_softmax[r].x != kNegInf) {
          vec2 running = running_softmax[r];
          float old_scale, new_scale;
          merge_softmax(running, chunk_softmax[r], old_scale, new_scale);
          result_tile[r * kValueDim + dim] = merge_value(result_tile[r * kValueDim + dim], sum, old_scale, new_scale);
        }
      }
      barrier();
    }
  }
  if (thread_id() < tile_rows) {
    int r = thread_id();
    if (is_split_kv) {
      write_partial_softmax(r, partial_index);
    } else if (chunk_softmax[r].x != kNegInf) {
      vec2 running = running_softmax[r];
      float old_scale, new_scale;
      merge_softmax(running, chunk_softmax[r], old_scale, new_scale);
      running_softmax[r] = running;
    }
  }
  barrier();
}

void write_results() {
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    write_result(r, dim, result_tile[r * kValueDim + dim], running_softmax[r]);
  }
}
