// Attention over paged keys and values.
// A head's keys in a page are a panel of 32 positions in pieces of 16 bytes, so that a lane is a position; its values
// are rows. Positions are cut into chunks of 256 at fixed places. Each chunk's softmax is finished alone (its largest
// score, sum and weighted values), then chunks are merged in order, by one function: whether a block loops over its
// chunks or many blocks take one each, and whatever rows share a block, a row's result is the same to the bit.
#include "backend/simt/rounding.h"

namespace zinc::simt {

// ---- how keys and values lie ----

struct KvF32 {
  static constexpr int kPieceElems = 4, kElemBytes = 4;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    return __uint_as_float(k == 0 ? p.x : k == 1 ? p.y : k == 2 ? p.z : p.w);
  }
  static ZINC_DEVICE float key_scale(const u8*, int, int, int) { return 1; }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    return *reinterpret_cast<const float4*>(rows + (static_cast<long long>(position) * v_dim + i) * 4);
  }
  static ZINC_DEVICE void write(u8* at, u8*, float x) { *reinterpret_cast<float*>(at) = x; }
};

struct KvF16 {
  static constexpr int kPieceElems = 8, kElemBytes = 2;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 pair = k / 2 == 0 ? p.x : k / 2 == 1 ? p.y : k / 2 == 2 ? p.z : p.w;
    return k % 2 == 0 ? low_half(pair) : high_half(pair);
  }
  static ZINC_DEVICE float key_scale(const u8*, int, int, int) { return 1; }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const uint2 v = *reinterpret_cast<const uint2*>(rows + (static_cast<long long>(position) * v_dim + i) * 2);
    return make_float4(low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y));
  }
  static ZINC_DEVICE void write(u8* at, u8*, float x) { *reinterpret_cast<u16*>(at) = float_to_half(x); }
};

// Signed bytes, then the f16 scales of each 32: keys' by position, values' by row.
struct KvQ8 {
  static constexpr int kPieceElems = 16, kElemBytes = 1;
  static ZINC_DEVICE float element(const uint4& p, int k) {
    const u32 word = k / 4 == 0 ? p.x : k / 4 == 1 ? p.y : k / 4 == 2 ? p.z : p.w;
    return static_cast<float>(static_cast<signed char>(word >> 8 * (k % 4) & 255u));
  }
  static ZINC_DEVICE float key_scale(const u8* keys, int k_dim, int position, int block) {
    return half_to_float(
        reinterpret_cast<const u16*>(keys + k_dim * kPagePositions)[block * kPagePositions + position]);
  }
  static ZINC_DEVICE float4 values(const u8* rows, int v_dim, int position, int i) {
    const u32 v = *reinterpret_cast<const u32*>(rows + position * v_dim + i);
    const u16* scales = reinterpret_cast<const u16*>(rows + v_dim * kPagePositions);
    const float scale = half_to_float(scales[position * (v_dim / 32) + i / 32]);
    const auto byte = [&](int b) { return static_cast<float>(static_cast<signed char>(v >> 8 * b & 255u)) * scale; };
    return make_float4(byte(0), byte(1), byte(2), byte(3));
  }
  // A warp writes a block of 32; the quotients are rounded half away from zero, as Q8_0 is.
  static ZINC_DEVICE void write(u8* at, u8* scale_at, float x) {
    const float d = lanes_max(fabsf(x), 32) / 127.0f;
    const float q = roundf(x * (d != 0.0f ? 1.0f / d : 0.0f));
    *reinterpret_cast<signed char*>(at) = fabsf(q) <= 127.0f ? static_cast<signed char>(q) : 0;
    if (lane_id() == 0) *reinterpret_cast<u16*>(scale_at) = float_to_half(d);
  }
};

ZINC_DEVICE int padded(int n) { return (n + 31) / 32 * 32; }

// The page that holds `position` of sequence `seq`.
ZINC_DEVICE int page_of(const Step& step, int group, int seq, int position) {
  const int column = position / kPagePositions - step.first_column[group * step.max_seqs + seq];
  const int* entries = step.counts + step.counts[kEntries + group];
  return entries[seq * step.counts[kStride + group] + column];
}

ZINC_DEVICE u8* head_of(const KvLayer& kv, int page, int head) {
  return kv.pages + page * kv.page_bytes + static_cast<long long>(head) * kv.head_bytes;
}

// ---- writing ----

// The warp's 32 numbers from `block * 32` on, of a key or value head at `row` of a page.
template <class Kv>
ZINC_DEVICE void write_block(const KvLayer& kv, u8* keys, bool is_key, int row, int block, float x) {
  const int i = block * 32 + lane_id();
  if (is_key) {
    u8* at = keys + (i / Kv::kPieceElems * kPagePositions + row) * 16 + i % Kv::kPieceElems * Kv::kElemBytes;
    Kv::write(at, keys + kv.k_dim * kPagePositions + (block * kPagePositions + row) * 2, x);
  } else {
    u8* values = keys + kv.value_begin;
    u8* at = values + (row * padded(kv.v_dim) + i) * Kv::kElemBytes;
    Kv::write(at, values + kv.v_dim * kPagePositions + (row * (kv.v_dim / 32) + block) * 2, x);
  }
}

ZINC_DEVICE u8* keys_at(const Step& step, const KvLayer& kv, int t, int head) {
  return head_of(kv, page_of(step, kv.group, step.seq_of_token[t], step.positions[t]), head);
}

// One warp per 32 numbers of a token's key or value head.
template <class Kv>
ZINC_DEVICE void kv_write(const KvWriteParams& p) {
  let_next_start();
  wait_for_previous();
  const int k_blocks = padded(p.kv.k_dim) / 32, v_blocks = padded(p.kv.v_dim) / 32, per_head = k_blocks + v_blocks;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  const int t = index / (per_head * p.kv.kv_heads), head = index / per_head % p.kv.kv_heads;
  if (t >= p.step.counts[kTokens]) return;
  const bool is_key = index % per_head < k_blocks;
  const int block = is_key ? index % per_head : index % per_head - k_blocks;
  const int dim = is_key ? p.kv.k_dim : p.kv.v_dim, i = block * 32 + lane_id();
  const float* from = (is_key ? p.k : p.v) + (static_cast<long long>(t) * p.kv.kv_heads + head) * dim;
  write_block<Kv>(p.kv, keys_at(p.step, p.kv, t, head), is_key, p.step.positions[t] % kPagePositions, block,
                  i < dim ? from[i] : 0.0f);
}

// One warp per head of q, k or v, of up to 256 numbers.
template <class Kv>
ZINC_DEVICE void prepare_heads(const HeadsParams& p) {
  __shared__ float heads[kWarps][kSegmentElems];
  let_next_start();
  wait_for_previous();
  const int n_heads = p.parts[0].n_heads + p.parts[1].n_heads + p.parts[2].n_heads;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id(), t = index / n_heads;
  if (t >= p.step.counts[kTokens]) return;
  int head = index % n_heads, which = 0;
  for (; head >= p.parts[which].n_heads; ++which) head -= p.parts[which].n_heads;
  const HeadPart& part = p.parts[which];
  float* values = heads[warp_id()];
  Eight x = load_eight(part.x + (static_cast<long long>(t) * part.n_heads + head) * part.dim, lane_id() * 8, part.dim);
  if (part.is_normed) {
    const float factor = rms_factor(lanes_sum(squares(x, 0), 32), part.dim, part.eps);
    x = normed(x, factor, part.norm_weight, lane_id() * 8, part.dim);
  }
  store_eight(values, lane_id() * 8, kSegmentElems, x);
  __syncwarp();
  for (int i = lane_id(); part.table && i < part.n_pairs; i += 32) {
    const float* turn = part.table + 2 * (static_cast<long long>(t) * part.n_pairs + i);
    const int first = part.adjacent ? 2 * i : i, second = part.adjacent ? 2 * i + 1 : i + part.n_pairs;
    const float a = values[first], b = values[second];
    values[first] = a * turn[0] - b * turn[1];
    values[second] = a * turn[1] + b * turn[0];
  }
  __syncwarp();
  if (which == 0) {
    float* out = p.q_out + (static_cast<long long>(t) * part.n_heads + head) * part.dim;
    for (int i = lane_id(); i < part.dim; i += 32) out[i] = values[i];
    return;
  }
  u8* keys = keys_at(p.step, p.kv, t, head);
  for (int block = 0; block < padded(part.dim) / 32; ++block) {
    write_block<Kv>(p.kv, keys, which == 1, p.step.positions[t] % kPagePositions, block,
                    values[block * 32 + lane_id()]);
  }
}

// ---- reading ----

// Some consecutive tokens of one sequence, some heads that share keys: the rows of a block.
struct Tile {
  int seq, first_token, n_tokens, kv_head, first_head, n_heads, n_rows;
  int first_position;  // of the first token
  int oldest;          // position any of them sees
  ZINC_DEVICE int position(int row) const { return first_position + row / n_heads; }
  ZINC_DEVICE int last_position() const { return first_position + n_tokens - 1; }
};

struct Running {
  float largest, sum;
};

ZINC_DEVICE float lowest_score() { return __int_as_float(0xFF800000); }

// How much a result so far and a chunk's count when merged. REQUIRES: the chunk saw something.
ZINC_DEVICE void merge(Running& all, const Running& chunk, float& keep, float& take) {
  const float largest = fmaxf(all.largest, chunk.largest);
  keep = expf(all.largest - largest);
  take = expf(chunk.largest - largest);
  all.sum = fmaf(all.sum, keep, chunk.sum * take);
  all.largest = largest;
}
ZINC_DEVICE float merged(float all, float chunk, float keep, float take) { return fmaf(all, keep, chunk * take); }

// The sink takes part in the softmax and has no value.
ZINC_DEVICE float final_factor(Running all, const float* sinks, int head) {
  if (!sinks) return 1.0f / all.sum;
  float keep, take;
  merge(all, {sinks[head], 1.0f}, keep, take);
  return keep / all.sum;
}

// Shared memory of a block.
struct Room {
  float* q;        // [rows][padded k_dim]
  float* scores;   // [rows][kChunkPositions]
  float* partial;  // [kWarps][rows][128]
  float* result;   // [rows][padded v_dim]
  Running* all;    // [rows]
  Running* chunk;  // [rows]
};

// Scores of one position per thread with every row; minus infinity where a row does not see it.
template <class Kv, int N>
ZINC_DEVICE void score_chunk(const AttentionParams& p, const Tile& tile, const Room& room, int first) {
  constexpr int kPieces = 32 / Kv::kPieceElems;
  const int position = first + static_cast<int>(threadIdx.x), k_dim = padded(p.kv.k_dim);
  const bool is_seen = position >= tile.oldest && position <= tile.last_position();
  float score[N] = {};
  if (is_seen) {
    const int page = page_of(p.step, p.kv.group, tile.seq, position), at = position % kPagePositions;
    const u8* keys = head_of(p.kv, page, tile.kv_head);
#pragma unroll(N <= 2 ? 4 : 2)
    for (int block = 0; block < k_dim / 32; ++block) {
      const float scale = Kv::key_scale(keys, p.kv.k_dim, at, block);
      uint4 loaded[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        loaded[j] = *reinterpret_cast<const uint4*>(keys + ((block * kPieces + j) * kPagePositions + at) * 16);
      }
#pragma unroll
      for (int i = 0; i < 32; i += 4) {
        float key[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          key[k] = Kv::element(loaded[(i + k) / Kv::kPieceElems], (i + k) % Kv::kPieceElems) * scale;
        }
#pragma unroll
        for (int r = 0; r < N; ++r) {
          const float4 q = *reinterpret_cast<const float4*>(room.q + r * k_dim + block * 32 + i);
          score[r] = fmaf(q.w, key[3], fmaf(q.z, key[2], fmaf(q.y, key[1], fmaf(q.x, key[0], score[r]))));
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < N; ++r) {
    const int newest = tile.position(r);
    float s = score[r] * p.scale;
    if (p.softcap > 0) s = p.softcap * tanhf(s / p.softcap);
    const bool sees = is_seen && position <= newest && (p.window == 0 || position > newest - p.window);
    room.scores[r * kChunkPositions + threadIdx.x] = sees ? s : lowest_score();
  }
}

// One warp per row: scores become weights, their largest and sum the chunk's.
ZINC_DEVICE void soften_chunk(const Tile& tile, const Room& room) {
  const int r = warp_id();
  if (r >= tile.n_rows) return;
  float* scores = room.scores + r * kChunkPositions;
  float largest = lowest_score(), sum = 0;
  for (int i = lane_id(); i < kChunkPositions; i += 32) largest = fmaxf(largest, scores[i]);
  largest = lanes_max(largest, 32);
  for (int i = lane_id(); i < kChunkPositions; i += 32) {
    const float weight = largest == lowest_score() ? 0.0f : expf(scores[i] - largest);
    scores[i] = weight;
    sum += weight;
  }
  sum = lanes_sum(sum, 32);
  if (lane_id() == 0) room.chunk[r] = {largest, sum};
}

// Warp w sums the values of page w of the chunk, four dimensions a lane, 128 at a time. Positions no row sees have no
// weight, and the nearest one's values are read for them.
template <class Kv, int N>
ZINC_DEVICE void weigh_values(const AttentionParams& p, const Tile& tile, const Room& room, int first, int first_dim) {
  constexpr int kAtOnce = N <= 2 ? 16 : 8;  // loads under way
  const int v_dim = padded(p.kv.v_dim), i = first_dim + lane_id() * 4, page_first = first + warp_id() * kPagePositions;
  float4 sum[N] = {};
  const int begin = max(page_first, tile.oldest), end = min(page_first + kPagePositions, tile.last_position() + 1);
  if (begin < end && i < v_dim) {
    const u8* values = head_of(p.kv, page_of(p.step, p.kv.group, tile.seq, begin), tile.kv_head) + p.kv.value_begin;
    for (int from = 0; from < kPagePositions; from += kAtOnce) {
      float4 v[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        v[j] = Kv::values(values, v_dim, max(begin, min(end - 1, page_first + from + j)) % kPagePositions, i);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int r = 0; r < N; ++r) {
          const float weight = room.scores[r * kChunkPositions + warp_id() * kPagePositions + from + j];
          sum[r].x = fmaf(weight, v[j].x, sum[r].x);
          sum[r].y = fmaf(weight, v[j].y, sum[r].y);
          sum[r].z = fmaf(weight, v[j].z, sum[r].z);
          sum[r].w = fmaf(weight, v[j].w, sum[r].w);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < N; ++r) {
    reinterpret_cast<float4*>(room.partial + (warp_id() * N + r) * 128)[lane_id()] = sum[r];
  }
}

ZINC_DEVICE float* partial_of(const AttentionParams& p, const Tile& tile, int row, int chunk) {
  const int token = tile.first_token + row / tile.n_heads, head = tile.first_head + row % tile.n_heads;
  const long long index = (static_cast<long long>(token) * p.n_heads + head) * p.n_chunks + chunk;
  return p.partial + index * (p.kv.v_dim + 2);
}

template <class Kv, int N>
ZINC_DEVICE void attend_chunk(const AttentionParams& p, const Tile& tile, const Room& room, int chunk, int slot) {
  const int first = chunk * kChunkPositions;
  score_chunk<Kv, N>(p, tile, room, first);
  __syncthreads();
  soften_chunk(tile, room);
  __syncthreads();
  for (int first_dim = 0; first_dim < p.kv.v_dim; first_dim += 128) {
    weigh_values<Kv, N>(p, tile, room, first, first_dim);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * 128; i += kThreads) {
      const int r = i / 128, dim = first_dim + i % 128;
      if (dim >= p.kv.v_dim) continue;
      float sum = room.partial[r * 128 + i % 128];
      for (int w = 1; w < kWarps; ++w) sum += room.partial[(w * N + r) * 128 + i % 128];
      if (p.partial) {
        partial_of(p, tile, r, slot)[2 + dim] = sum;
      } else if (room.chunk[r].largest != lowest_score()) {
        Running all = room.all[r];
        float keep, take;
        merge(all, room.chunk[r], keep, take);
        float& result = room.result[r * padded(p.kv.v_dim) + dim];
        result = merged(result, sum, keep, take);
      }
    }
    __syncthreads();
  }
  if (static_cast<int>(threadIdx.x) < tile.n_rows) {
    const int r = static_cast<int>(threadIdx.x);
    if (p.partial) {
      float* to = partial_of(p, tile, r, slot);
      to[0] = room.chunk[r].largest;
      to[1] = room.chunk[r].sum;
    } else if (room.chunk[r].largest != lowest_score()) {
      float keep, take;
      merge(room.all[r], room.chunk[r], keep, take);
    }
  }
  __syncthreads();
}

template <class Kv, int N>
ZINC_DEVICE void attend_tile(const AttentionParams& p, const Tile& tile, const Room& room) {
  const int k_dim = padded(p.kv.k_dim), v_dim = padded(p.kv.v_dim);
  for (int i = static_cast<int>(threadIdx.x); i < N * k_dim; i += kThreads) {
    const int r = min(i / k_dim, tile.n_rows - 1), k = i % k_dim;  // rows past the last repeat it
    const long long token = tile.first_token + r / tile.n_heads, head = tile.first_head + r % tile.n_heads;
    room.q[i] = k < p.kv.k_dim ? p.q[(token * p.n_heads + head) * p.kv.k_dim + k] : 0.0f;
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * v_dim; i += kThreads) room.result[i] = 0;
  if (static_cast<int>(threadIdx.x) < tile.n_rows) room.all[threadIdx.x] = {lowest_score(), 0.0f};
  __syncthreads();
  const int first = tile.oldest / kChunkPositions, last = tile.last_position() / kChunkPositions;
  const int stride = p.partial ? static_cast<int>(gridDim.z) : 1, begin = p.partial ? static_cast<int>(blockIdx.z) : 0;
  for (int chunk = first + begin; chunk <= last; chunk += stride)
    attend_chunk<Kv, N>(p, tile, room, chunk, chunk - first);
  if (p.partial) return;
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * p.kv.v_dim; i += kThreads) {
    const int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    const long long token = tile.first_token + r / tile.n_heads, head = tile.first_head + r % tile.n_heads;
    const float factor = final_factor(room.all[r], p.sinks, static_cast<int>(head));
    p.out[(token * p.n_heads + head) * p.kv.v_dim + dim] = room.result[r * v_dim + dim] * factor;
  }
  __syncthreads();
}

// Grid: tiles of heads, tiles of tokens, splits of the chunks (1 where a block merges them itself).
template <class Kv, int N>
ZINC_DEVICE void attention(const AttentionParams& p) {
  extern __shared__ float4 shared[];
  let_next_start();
  wait_for_previous();
  const int n_tokens = p.step.counts[kTokens], first = static_cast<int>(blockIdx.y) * p.tokens_per_tile;
  if (first >= n_tokens) return;
  Room room;
  room.partial = reinterpret_cast<float*>(shared);
  room.scores = room.partial + kWarps * N * 128;
  room.q = room.scores + N * kChunkPositions;
  room.result = room.q + N * padded(p.kv.k_dim);
  room.all = reinterpret_cast<Running*>(room.result + N * padded(p.kv.v_dim));
  room.chunk = room.all + N;
  const int group_heads = p.n_heads / p.kv.kv_heads, tiles = (group_heads + p.heads_per_tile - 1) / p.heads_per_tile;
  const int kv_head = static_cast<int>(blockIdx.x) / tiles;
  const int head_in_group = static_cast<int>(blockIdx.x) % tiles * p.heads_per_tile;
  const int end = min(n_tokens, first + p.tokens_per_tile);
  for (int t = first; t < end;) {  // tokens of one sequence at a time
    Tile tile;
    tile.seq = p.step.seq_of_token[t];
    tile.first_token = t;
    tile.n_tokens = min(end, p.step.seq_begin[tile.seq + 1]) - t;
    tile.kv_head = kv_head;
    tile.first_head = kv_head * group_heads + head_in_group;
    tile.n_heads = min(p.heads_per_tile, group_heads - head_in_group);
    tile.n_rows = tile.n_tokens * tile.n_heads;
    tile.first_position = p.step.positions[t];
    tile.oldest = p.window > 0 ? max(0, tile.first_position - p.window + 1) : 0;
    attend_tile<Kv, N>(p, tile, room);
    t += tile.n_tokens;
  }
}

// One thread per number of a token's row, 256 of them a block: their chunks, in order, and then rounded if wanted.
// REQUIRES: tiles of one token, so that a row's chunks count from its own first.
ZINC_KERNEL merge_chunks(__grid_constant__ const AttentionParams p) {
  __shared__ float segment[kSegmentElems];
  let_next_start();
  wait_for_previous();
  const int t = static_cast<int>(blockIdx.y), width = p.n_heads * p.kv.v_dim;
  if (t >= p.step.counts[kTokens]) return;
  const int position = p.step.positions[t], oldest = p.window > 0 ? max(0, position - p.window + 1) : 0;
  const int n_chunks = position / kChunkPositions - oldest / kChunkPositions + 1;
  const int i = static_cast<int>(blockIdx.x) * kSegmentElems + static_cast<int>(threadIdx.x);
  const int head = i / p.kv.v_dim, dim = i % p.kv.v_dim;
  float result = 0;
  if (i < width) {
    const float* chunks = p.partial + (static_cast<long long>(t) * p.n_heads + head) * p.n_chunks * (p.kv.v_dim + 2);
    Running all = {lowest_score(), 0.0f};
    for (int c = 0; c < n_chunks; ++c) {
      const float* chunk = chunks + static_cast<long long>(c) * (p.kv.v_dim + 2);
      if (chunk[0] == lowest_score()) continue;
      float keep, take;
      merge(all, {chunk[0], chunk[1]}, keep, take);
      result = merged(result, chunk[2 + dim], keep, take);
    }
    result *= final_factor(all, p.sinks, head);
    if (p.out) p.out[static_cast<long long>(t) * width + i] = result;
  }
  if (!p.rounded.q) return;
  segment[threadIdx.x] = result;
  __syncthreads();
  if (warp_id() > 0) return;
  const Eight x = load_eight(segment, lane_id() * 8, kSegmentElems);
  store_rounded(round_eight(x, p.block), p.rounded, t, static_cast<int>(blockIdx.x), p.block);
}

ZINC_KERNEL prepare_heads_f32(__grid_constant__ const HeadsParams p) { prepare_heads<KvF32>(p); }
ZINC_KERNEL prepare_heads_f16(__grid_constant__ const HeadsParams p) { prepare_heads<KvF16>(p); }
ZINC_KERNEL prepare_heads_q8_0(__grid_constant__ const HeadsParams p) { prepare_heads<KvQ8>(p); }
ZINC_KERNEL kv_write_f32(KvWriteParams p) { kv_write<KvF32>(p); }
ZINC_KERNEL kv_write_f16(KvWriteParams p) { kv_write<KvF16>(p); }
ZINC_KERNEL kv_write_q8_0(KvWriteParams p) { kv_write<KvQ8>(p); }
ZINC_KERNEL attention_f32_2(__grid_constant__ const AttentionParams p) { attention<KvF32, 2>(p); }
ZINC_KERNEL attention_f32_4(__grid_constant__ const AttentionParams p) { attention<KvF32, 4>(p); }
ZINC_KERNEL attention_f32_8(__grid_constant__ const AttentionParams p) { attention<KvF32, 8>(p); }
ZINC_KERNEL attention_f16_2(__grid_constant__ const AttentionParams p) { attention<KvF16, 2>(p); }
ZINC_KERNEL attention_f16_4(__grid_constant__ const AttentionParams p) { attention<KvF16, 4>(p); }
ZINC_KERNEL attention_f16_8(__grid_constant__ const AttentionParams p) { attention<KvF16, 8>(p); }
ZINC_KERNEL attention_q8_0_2(__grid_constant__ const AttentionParams p) { attention<KvQ8, 2>(p); }
ZINC_KERNEL attention_q8_0_4(__grid_constant__ const AttentionParams p) { attention<KvQ8, 4>(p); }
ZINC_KERNEL attention_q8_0_8(__grid_constant__ const AttentionParams p) { attention<KvQ8, 8>(p); }

}  // namespace zinc::simt
