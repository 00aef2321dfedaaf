// Attention on cooperative matrices of halves, summed in floats: attention.glsl. REQUIRES: a cache of halves, subgroups of 32.
// Queries and weights are rounded to halves. A warp has the scores of a page of the chunk, 32 positions, with every row; then
// the rows' softmax; then 16 dimensions of the values (32 of long ones). A row of a matrix product depends on that row alone,
// and sums run over dimensions and positions in order: nothing depends on what rows share the tile.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "attention.glsl"

const int kTile = 16, kRowTiles = N / kTile;
const int kMaxDimTiles = 2, kDimTiles = (kValueDim / kTile + kWarps - 1) / kWarps;  // of a warp: values of up to 256
const int kQueryStride = kKeyDim / 8 + 1, kScoreStride = kChunkPositions / 4 + 1;   // in sixteens of bytes
const int kResultStride = kValueDim / 4 + 1;
const int kKeyStride = 5, kKeyRoom = kPagePositions * kKeyStride;  // of 32 dimensions of a page's keys
const int kScoreRoom = N * (kScoreStride > kResultStride ? kScoreStride : kResultStride);

shared uvec4 q_room[N * kQueryStride];
// Each warp's keys; then scores; then weights as halves, in the first half of their row; then results.
shared uvec4 score_room[kScoreRoom > kWarps * kKeyRoom ? kScoreRoom : kWarps * kKeyRoom];
shared uint64_t page_room[kWarps];        // the chunk's pages
shared float keep_room[N], take_room[N];  // how results so far and this chunk's count

#define Left coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseA>
#define Right coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseB>
#define Sums coopmat<float, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
const int kRowMajor = gl_CooperativeMatrixLayoutRowMajor, kColumnMajor = gl_CooperativeMatrixLayoutColumnMajor;

Sums results[2][kMaxDimTiles];  // of the warp's dimensions, of all chunks so far

void keep_query(int r, int four, vec4 q) {
  int at = r * kQueryStride + four / 2, half_at = four % 2 * 2;
  q_room[at][half_at] = packHalf2x16(q.xy);
  q_room[at][half_at + 1] = packHalf2x16(q.zw);
}
void begin_results() {
  [[unroll]] for (int m = 0; m < 2; ++m) {
    [[unroll]] for (int n = 0; n < kMaxDimTiles; ++n) results[m][n] = Sums(0);
  }
}

// 32 of the numbers of the page's keys, on their way to shared memory: four neighbouring lanes have a position's.
const int kBlocks = kKeyDim / 32, kBlocksAhead = kBlocks < 4 ? kBlocks : 4;
uvec4 keys_ahead[kBlocksAhead][4];

void load_keys(uint64_t keys, int block) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    int position = i * 8 + lane_id() / 4;
    keys_ahead[block % kBlocksAhead][i] = Quads(keys).at[position * (kKeyDim / 8) + block * 4 + lane_id() % 4];
  }
}
void store_keys(int block) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    int position = i * 8 + lane_id() / 4;
    score_room[warp_id() * kKeyRoom + position * kKeyStride + lane_id() % 4] = keys_ahead[block % kBlocksAhead][i];
  }
}

// 16 dimensions of a page's values, on their way to shared memory: two neighbouring lanes have a position's of each half of
// the page. Positions nobody sees have no weight: the nearest one's are read there.
const int kPagesAhead = 4, kTileAt = kChunkPositions / 8;  // kTileAt: behind a row's weights is room for a tile of values
uvec4 values_ahead[kPagesAhead][2];

void load_values(int first, int dim, int page) {
  uint64_t values = page_room[page] + uint64_t(p.kv.value_begin);
  [[unroll]] for (int i = 0; i < 2; ++i) {
    int position = clamp(first + page * kPagePositions + i * kTile + lane_id() / 2, tile_oldest, last_position());
    values_ahead[page % kPagesAhead][i] = Quads(values).at[(position % kPagePositions * kValueDim + dim) / 8 + lane_id() % 2];
  }
}
void begin_values(int first, int dim) {
  [[unroll]] for (int page = 0; page < kPagesAhead; ++page) {
    if (page_room[page] != 0ul) load_values(first, dim, page);
  }
}
// Prompts ask for a chunk's first values before its softmax: 4 % at depth 8192 (qwen3-8b, H200). One token does not: with that
// and other loads ahead it was 7 % slower.
const bool kValuesEarly = kFused == 0;

// Scores of the warp's 32 positions with every row. In prompts the first values are on their way when it is done.
void score_page(uint64_t keys, int first) {
  Sums sums[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = Sums(0);
  if (keys != 0ul) {
    [[unroll]] for (int block = 0; block < kBlocksAhead; ++block) load_keys(keys, block);
    [[unroll]] for (int block = 0; block < kBlocks; ++block) {
      subgroupBarrier();  // the block before has been read
      store_keys(block);
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      if (block + kBlocksAhead < kBlocks) load_keys(keys, block + kBlocksAhead);
      [[unroll]] for (int k = 0; k < 2; ++k) {
        Right key[2];
        [[unroll]] for (int t = 0; t < 2; ++t) {
          coopMatLoad(key[t], score_room, warp_id() * kKeyRoom + t * kTile * kKeyStride + 2 * k, kKeyStride, kColumnMajor);
        }
        [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
          Left q;
          coopMatLoad(q, q_room, m * kTile * kQueryStride + 4 * block + 2 * k, kQueryStride, kRowMajor);
          [[unroll]] for (int t = 0; t < 2; ++t) sums[m][t] = coopMatMulAdd(q, key[t], sums[m][t]);
        }
      }
    }
  }
  barrier();  // scores lie where keys do
  if (kValuesEarly && warp_id() * kTile < kValueDim) begin_values(first, warp_id() * kTile);
  [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
    [[unroll]] for (int t = 0; t < 2; ++t) {
      coopMatStore(sums[m][t], score_room, m * kTile * kScoreStride + warp_id() * 8 + t * 4, kScoreStride, kRowMajor);
    }
  }
}

// Scores of a row become weights; eight positions a lane.
void soften_row(int r, int first) {
  int newest = row_position(r), position = first + lane_id() * 8, at = r * kScoreStride;
  uvec4 bits[2];
  [[unroll]] for (int i = 0; i < 2; ++i) bits[i] = score_room[at + lane_id() * 2 + i];
  float weights[8], largest = kLowest;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    precise float s = uintBitsToFloat(bits[i / 4][i % 4]) * p.scale;
    if (p.softcap > 0) s = p.softcap * bounded_tanh(s / p.softcap);
    bool sees = position + i >= tile_oldest && position + i <= newest && (p.window == 0 || position + i > newest - p.window);
    weights[i] = sees ? s : kLowest;
    largest = max(largest, weights[i]);
  }
  largest = lanes_max(largest, 32);
  precise float sum = 0;
  [[unroll]] for (int i = 0; i < 8; ++i) {
    weights[i] = largest == kLowest ? 0.0 : exp(weights[i] - largest);
    sum = sum + weights[i];
  }
  sum = lanes_sum(sum, 32);
  score_room[at + lane_id()] = uvec4(packHalf2x16(vec2(weights[0], weights[1])), packHalf2x16(vec2(weights[2], weights[3])),
                                     packHalf2x16(vec2(weights[4], weights[5])), packHalf2x16(vec2(weights[6], weights[7])));
  if (lane_id() > 0) return;
  vec2 all = all_room[r], chunk = vec2(largest, sum);
  float keep = 1, take = 0;
  if (largest != kLowest) merge(all, chunk, keep, take);
  chunk_room[r] = chunk;
  all_room[r] = all;
  keep_room[r] = keep;
  take_room[r] = take;
}

// The values of 16 dimensions, weighed. REQUIRES: begin_values().
void weigh_values(int first, int dim, out Sums sums[2]) {
  int tile = warp_id() * 2 * kScoreStride + kTileAt;
  [[unroll]] for (int m = 0; m < 2; ++m) sums[m] = Sums(0);
  [[unroll]] for (int page = 0; page < kWarps; ++page) {
    if (page_room[page] != 0ul) {
      subgroupBarrier();  // the page before has been read
      [[unroll]] for (int i = 0; i < 2; ++i) score_room[tile + i * kScoreStride + lane_id()] = values_ahead[page % kPagesAhead][i];
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      [[unroll]] for (int i = 0; i < 2; ++i) {
        Right value;
        coopMatLoad(value, score_room, tile + i * kScoreStride, 2, kRowMajor);
        [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
          Left weight;
          coopMatLoad(weight, score_room, m * kTile * kScoreStride + 4 * page + 2 * i, kScoreStride, kRowMajor);
          sums[m] = coopMatMulAdd(weight, value, sums[m]);
        }
      }
    }
    if (page + kPagesAhead < kWarps && page_room[page + kPagesAhead] != 0ul) load_values(first, dim, page + kPagesAhead);
  }
}

void take_chunk(Sums chunk[2], int n) {
  [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
    Sums keep, take;
    coopMatLoad(keep, keep_room, m * kTile, 0, kColumnMajor);
    coopMatLoad(take, take_room, m * kTile, 0, kColumnMajor);
    for (int i = 0; i < keep.length(); ++i) {
      if (take[i] != 0.0) results[m][n][i] = merged(results[m][n][i], chunk[m][i], keep[i], take[i]);
    }
  }
}

// Into score_room, row by row. REQUIRES: nobody reads weights any more.
void store_results() {
  [[unroll]] for (int n = 0; n < kDimTiles; ++n) {
    int dim = (n * kWarps + warp_id()) * kTile;
    [[unroll]] for (int m = 0; m < kRowTiles; ++m) {
      if (dim < kValueDim) coopMatStore(results[m][n], score_room, m * kTile * kResultStride + dim / 4, kResultStride, kRowMajor);
    }
  }
  barrier();
}
float result_at(int r, int dim) { return uintBitsToFloat(score_room[r * kResultStride + dim / 4][dim % 4]); }

void write_partials(int slot) {
  store_results();
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    PassedFloats(partial_of(row_token(r), row_head(r), slot)).at[dim] = result_at(r, dim);
  }
  if (thread_id() < tile_rows) write_partial_sums(thread_id(), slot);
}

void attend_chunk(int chunk, int slot) {
  int first = chunk * kChunkPositions;
  uint64_t page = page_in_chunk(chunk);
  if (lane_id() == 0) page_room[warp_id()] = page;
  score_page(page, first);
  barrier();
  for (int r = warp_id(); r < tile_rows; r += kWarps) soften_row(r, first);
  barrier();
  [[unroll]] for (int n = 0; n < kDimTiles; ++n) {
    int dim = (n * kWarps + warp_id()) * kTile;
    if (dim >= kValueDim) continue;
    Sums sums[2];
    if (n > 0 || !kValuesEarly) begin_values(first, dim);
    weigh_values(first, dim, sums);
    if (!is_divided) {
      take_chunk(sums, n);
    } else {
      [[unroll]] for (int m = 0; m < kRowTiles; ++m) results[m][n] = sums[m];
    }
  }
  barrier();
  if (is_divided) {
    write_partials(slot);
    barrier();
  }
}

void write_results() {
  store_results();
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    write_result(r, dim, result_at(r, dim), all_room[r]);
  }
}
