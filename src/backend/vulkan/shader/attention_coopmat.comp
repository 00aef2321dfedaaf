// Attention on f16 cooperative matrices with f32 accumulators; see attention.glsl. REQUIRES: an f16 KV cache, subgroups of 32.
// Queries and softmax probabilities are rounded to f16. Per chunk, each warp computes the scores of one page (32 positions) for
// every row; then the softmax by rows; then each warp multiplies 16 value dimensions (32 if v_dim > 128). A row of a matrix
// product depends on that row alone, and sums run in a fixed order: results do not depend on the other rows of the tile.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "attention.glsl"

const int kTile = 16, kRowTiles = N / kTile;
const int kMaxDimTiles = 2, kDimTiles = (kValueDim / kTile + kWarps - 1) / kWarps;  // per warp: v_dim up to 256
const int kQueryStride = kKeyDim / 8 + 1, kScoreStride = kChunkPositions / 4 + 1;  // in uvec4 (16 bytes)
const int kResultStride = kValueDim / 4 + 1;
const int kKeyStride = 5, kKeyTileQuads = kPageTokens * kKeyStride;  // 32 dimensions of a page's keys
const int kSmemTileQuads = N * (kScoreStride > kResultStride ? kScoreStride : kResultStride);

shared uvec4 q_tile[N * kQueryStride];
// Used one after the other for: each warp's keys; scores (S); f16 probabilities (P), in the first half of their row, and values
// behind them; results (O).
shared uvec4 smem_tile[kSmemTileQuads > kWarps * kKeyTileQuads ? kSmemTileQuads : kWarps * kKeyTileQuads];
shared uint64_t chunk_pages[kWarps];  // pages of the chunk
shared float old_scales[N], new_scales[N];  // online-softmax factors of the running result and of the chunk

#define MatA coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseA>
#define MatB coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseB>
#define AccF32 coopmat<float, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
const int kRowMajor = gl_CooperativeMatrixLayoutRowMajor, kColumnMajor = gl_CooperativeMatrixLayoutColumnMajor;

AccF32 results[2][kMaxDimTiles];  // the warp's dimensions, over all chunks so far

void store_query(int r, int vec4_idx, vec4 q) {
  int offset = r * kQueryStride + vec4_idx / 2, word = vec4_idx % 2 * 2;
  q_tile[offset][word] = packHalf2x16(q.xy);
  q_tile[offset][word + 1] = packHalf2x16(q.zw);
}
void clear_accumulators() {
  [[unroll]] for (int m = 0; m < 2; ++m) {
    [[unroll]] for (int n = 0; n < kMaxDimTiles; ++n) results[m][n] = AccF32(0);
  }
}

// Prefetches 32 dimensions of the page's keys for shared memory: four neighboring lanes load one position.
const int kBlocks = kKeyDim / 32, kPrefetchBlocks = kBlocks < 4 ? kBlocks : 4;
uvec4 keys_prefetch[kPrefetchBlocks][4];

void load_keys(uint64_t keys, int block) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    int position = i * 8 + lane_id() / 4;
    keys_prefetch[block % kPrefetchBlocks][i] = Quads(keys).data[position * (kKeyDim / 8) + block * 4 + lane_id() % 4];
  }
}
void store_keys(int block) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    int position = i * 8 + lane_id() / 4;
    smem_tile[warp_id() * kKeyTileQuads + position * kKeyStride + lane_id() % 4] = keys_prefetch[block % kPrefetchBlocks][i];
  }
}

// Prefetches 16 dimensions of a page's values for shared memory: two neighboring lanes load one position of each half
// page. Masked positions have probability zero: the nearest valid position is loaded instead.
const int kPrefetchPages = 4, kValueTileOffset = kChunkPositions / 8;  // the tile of values is behind the row's probabilities
uvec4 values_prefetch[kPrefetchPages][2];

void load_values(int first, int dim, int page) {
  uint64_t values = chunk_pages[page] + uint64_t(p.kv.value_begin);
  [[unroll]] for (int i = 0; i < 2; ++i) {
    int position = clamp(first + page * kPageTokens + i * kTile + lane_id() / 2, tile_oldest, last_position());
    values_prefetch[page % kPrefetchPages][i] =
        Quads(values).data[(position % kPageTokens * kValueDim + dim) / 8 + lane_id() % 2];
  }
}
void prefetch_values(int first, int dim) {
  [[unroll]] for (int page = 0; page < kPrefetchPages; ++page) {
    if (chunk_pages[page] != 0ul) load_values(first, dim, page);
  }
}
// Prefill prefetches a chunk's first values before its softmax: 4 % faster at depth 8192 (qwen3-8b, H200). Decode does not:
// with this and other prefetches it was 7 % slower.
const bool kPrefetchesValues = kFused == 0;

// Scores of the warp's 32 positions for every row. Prefill has the first values in flight when this returns.
void score_page(uint64_t keys, int first) {
  AccF32 sums[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = AccF32(0);
  if (keys != 0ul) {
    [[unroll]] for (int block = 0; block < kPrefetchBlocks; ++block) load_keys(keys, block);
    [[unroll]] for (int block = 0; block < kBlocks; ++block) {
      subgroupBarrier();  // the previous block has been read
      store_keys(block);
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      if (block + kPrefetchBlocks < kBlocks) load_keys(keys, block + kPrefetchBlocks);
      [[unroll]] for (int k = 0; k < 2; ++k) {
        MatB key[2];
        [[unroll]] for (int t = 0; t < 2; ++t) {
          coopMatLoad(key[t], smem_tile, warp_id() * kKeyTileQuads + t * kTile * kKeyStride + 2 * k, kKeyStride, kColumnMajor);
        }
        [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
          MatA q;
          coopMatLoad(q, q_tile, m * kTile * kQueryStride + 4 * block + 2 * k, kQueryStride, kRowMajor);
          [[unroll]] for (int t = 0; t < 2; ++t) sums[m][t] = coopMatMulAdd(q, key[t], sums[m][t]);
        }
      }
    }
  }
  barrier();  // scores reuse the memory of the keys
  if (kPrefetchesValues && warp_id() * kTile < kValueDim) prefetch_values(first, warp_id() * kTile);
  [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
    [[unroll]] for (int t = 0; t < 2; ++t) {
      coopMatStore(sums[m][t], smem_tile, m * kTile * kScoreStride + warp_id() * 8 + t * 4, kScoreStride, kRowMajor);
    }
  }
}

// Softmax of one row: scores (S) become probabilities (P), eight positions per lane.
void softmax_row(int r, int first) {
  int newest = row_position(r), position = first + lane_id() * 8, row_offset = r * kScoreStride;
  uvec4 bits[2];
  [[unroll]] for (int i = 0; i < 2; ++i) bits[i] = smem_tile[row_offset + lane_id() * 2 + i];
  float probs[8], row_max = kNegInf;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    precise float s = uintBitsToFloat(bits[i / 4][i % 4]) * p.scale;
    if (p.softcap > 0) s = p.softcap * bounded_tanh(s / p.softcap);
    bool is_visible = position + i >= tile_oldest && position + i <= newest &&
                      (p.window == 0 || position + i > newest - p.window);
    probs[i] = is_visible ? s : kNegInf;
    row_max = max(row_max, probs[i]);
  }
  row_max = clustered_max(row_max, 32);
  precise float sum = 0;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    probs[i] = row_max == kNegInf ? 0.0 : exp(probs[i] - row_max);
    sum = sum + probs[i];
  }
  sum = clustered_sum(sum, 32);
  smem_tile[row_offset + lane_id()] = uvec4(packHalf2x16(vec2(probs[0], probs[1])), packHalf2x16(vec2(probs[2], probs[3])),
                                            packHalf2x16(vec2(probs[4], probs[5])), packHalf2x16(vec2(probs[6], probs[7])));
  if (lane_id() > 0) return;
  vec2 running = running_softmax[r], chunk = vec2(row_max, sum);
  float old_scale = 1, new_scale = 0;
  if (row_max != kNegInf) merge_softmax(running, chunk, old_scale, new_scale);
  chunk_softmax[r] = chunk;
  running_softmax[r] = running;
  old_scales[r] = old_scale;
  new_scales[r] = new_scale;
}

// Softmax probabilities times 16 dimensions of the values. REQUIRES: prefetch_values().
void multiply_values(int first, int dim, out AccF32 sums[2]) {
  int tile = warp_id() * 2 * kScoreStride + kValueTileOffset;
  [[unroll]] for (int m = 0; m < 2; ++m) sums[m] = AccF32(0);
  [[unroll]] for (int page = 0; page < kWarps; ++page) {
    if (chunk_pages[page] != 0ul) {
      subgroupBarrier();  // the previous page has been read
      [[unroll]] for (int i = 0; i < 2; ++i) {
        smem_tile[tile + i * kScoreStride + lane_id()] = values_prefetch[page % kPrefetchPages][i];
      }
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      [[unroll]] for (int i = 0; i < 2; ++i) {
        MatB value;
        coopMatLoad(value, smem_tile, tile + i * kScoreStride, 2, kRowMajor);
        [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
          MatA prob;
          coopMatLoad(prob, smem_tile, m * kTile * kScoreStride + 4 * page + 2 * i, kScoreStride, kRowMajor);
          sums[m] = coopMatMulAdd(prob, value, sums[m]);
        }
      }
    }
    if (page + kPrefetchPages < kWarps && chunk_pages[page + kPrefetchPages] != 0ul) {
      load_values(first, dim, page + kPrefetchPages);
    }
  }
}

void merge_chunk(AccF32 chunk[2], int n) {
  [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
    AccF32 old_scale, new_scale;
    coopMatLoad(old_scale, old_scales, m * kTile, 0, kColumnMajor);
    coopMatLoad(new_scale, new_scales, m * kTile, 0, kColumnMajor);
    for (int i = 0; i < old_scale.length(); ++i) {
      if (new_scale[i] != 0.0) results[m][n][i] = merge_value(results[m][n][i], chunk[m][i], old_scale[i], new_scale[i]);
    }
  }
}

// Stores results to smem_tile in row-major order. REQUIRES: the probabilities in smem_tile are no longer needed.
void store_results() {
  [[unroll]] for (int n = 0; n < kDimTiles; ++n) {
    int dim = (n * kWarps + warp_id()) * kTile;
    [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
      if (dim < kValueDim) coopMatStore(results[m][n], smem_tile, m * kTile * kResultStride + dim / 4, kResultStride, kRowMajor);
    }
  }
  barrier();
}
float result_at(int r, int dim) { return uintBitsToFloat(smem_tile[r * kResultStride + dim / 4][dim % 4]); }

void write_partials(int partial_index) {
  store_results();
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    CoherentFloats(partial_of(row_head(r), partial_index)).data[dim] = result_at(r, dim);
  }
  if (thread_id() < tile_rows) write_partial_softmax(thread_id(), partial_index);
}

void attend_chunk(int chunk, int partial_index) {
  int first = chunk * kChunkPositions;
  uint64_t page = page_in_chunk(chunk);
  if (lane_id() == 0) chunk_pages[warp_id()] = page;
  score_page(page, first);
  barrier();
  for (int r = warp_id(); r < tile_rows; r += kWarps) softmax_row(r, first);
  barrier();
  [[unroll]] for (int n = 0; n < kDimTiles; ++n) {
    int dim = (n * kWarps + warp_id()) * kTile;
    if (dim >= kValueDim) continue;
    AccF32 sums[2];
    if (n > 0 || !kPrefetchesValues) prefetch_values(first, dim);
    multiply_values(first, dim, sums);
    if (!is_split_kv) {
      merge_chunk(sums, n);
    } else {
      [[unroll]] for (int m = 0; m < kRowTiles; ++m) results[m][n] = sums[m];
    }
  }
  barrier();
  if (is_split_kv) {
    write_partials(partial_index);
    barrier();
  }
}

void write_results() {
  store_results();
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    write_result(r, dim, result_at(r, dim), running_softmax[r]);
  }
}
