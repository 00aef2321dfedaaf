// Attention over paged keys and values.
// Positions are cut into chunks of 256 at fixed places. Each chunk's softmax is finished alone (its largest
// score, sum and weighted values), then chunks are merged in order, by one function: whether a block loops over its
// chunks or many blocks take one each, and whatever rows share a block, a row's result is the same to the bit.
// A program of this file begins with kKept, how keys and values are kept.
#include "backend/simt/attention_heads.h"

namespace zinc::simt {

// ---- writing ----

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
  prepare_head(part, t, head, values);
  if (which > 0) return write_head<Kv>(p.step, p.kv, t, head, which == 1, values);
  float* out = p.q_out + (static_cast<long long>(t) * part.n_heads + head) * part.dim;
  for (int i = lane_id(); i < part.dim; i += 32) out[i] = values[i];
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

// Shared memory of a block.
struct Room {
  float* q;        // [rows][padded k_dim]
  float* scores;   // [rows][kChunkPositions]
  float* partial;  // [kWarps][rows][128]
  float* result;   // [rows][padded v_dim]
  Running* all;    // [rows]
  Running* chunk;  // [rows]
};

template <int N>
ZINC_DEVICE Room lay_out_room(const KvLayer& kv, void* shared) {
  Room room;
  room.partial = static_cast<float*>(shared);
  room.scores = room.partial + kWarps * N * 128;
  room.q = room.scores + N * kChunkPositions;
  room.result = room.q + N * padded(kv.k_dim);
  room.all = reinterpret_cast<Running*>(room.result + N * padded(kv.v_dim));
  room.chunk = room.all + N;
  return room;
}

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
ZINC_DEVICE void attend_chunk(const AttentionParams& p, const Tile& tile, const Room& room, int chunk, int slot,
                              bool is_split) {
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
      if (is_split) {
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
    if (is_split) {
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
    attend_chunk<Kv, N>(p, tile, room, chunk, chunk - first, p.partial != nullptr);
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
  const Room room = lay_out_room<N>(p.kv, shared);
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
    result = merge_row(p, chunks, n_chunks, head, dim);
    if (p.out) p.out[static_cast<long long>(t) * width + i] = result;
  }
  if (!p.rounded.q) return;
  segment[threadIdx.x] = result;
  __syncthreads();
  if (warp_id() > 0) return;
  const Eight x = load_eight(segment, lane_id() * 8, kSegmentElems);
  store_rounded(round_eight(x, p.block), p.rounded, t, static_cast<int>(blockIdx.x), p.block);
}

// ---- one token ----

// Brings the pages of a chunk nearer, one a warp.
ZINC_DEVICE void fetch_chunk(const AttentionParams& p, const Tile& tile, int chunk) {
  constexpr int kLine = 128;
  const int first = chunk * kChunkPositions + warp_id() * kPagePositions;
  if (first > tile.last_position() || first + kPagePositions <= tile.oldest) return;
  const u8* head = head_of(p.kv, page_of(p.step, p.kv.group, tile.seq, first), tile.kv_head);
  for (int at = lane_id() * kLine; at < p.kv.head_bytes; at += 32 * kLine) fetch_ahead(head + at);
}

// Grid: tiles of heads; 1; splits of the chunks.
template <class Kv>
ZINC_DEVICE void attend_one(const AttendOneParams& one) {
  constexpr int N = 2;
  extern __shared__ float4 shared[];
  const AttentionParams& p = one.attention;
  let_next_start();
  touch_params(one);
  const Room room = lay_out_room<N>(p.kv, shared);
  const int group_heads = p.n_heads / p.kv.kv_heads, tiles = (group_heads + N - 1) / N;
  Tile tile;
  tile.seq = 0;
  tile.first_token = 0;
  tile.n_tokens = 1;
  tile.kv_head = static_cast<int>(blockIdx.x) / tiles;
  const int head_in_group = static_cast<int>(blockIdx.x) % tiles * N;
  tile.first_head = tile.kv_head * group_heads + head_in_group;
  tile.n_heads = tile.n_rows = min(N, group_heads - head_in_group);
  tile.first_position = p.step.positions[0];  // what the host uploads is there before any kernel of the step
  tile.oldest = p.window > 0 ? max(0, tile.first_position - p.window + 1) : 0;
  const int first = tile.oldest / kChunkPositions, last = tile.first_position / kChunkPositions;
  const int n_splits = min(static_cast<int>(gridDim.z), last - first + 1), split = static_cast<int>(blockIdx.z);
  if (split >= n_splits) return;
  fetch_chunk(p, tile, first + split);
  wait_for_previous();
  const bool has_newest = (last - first) % n_splits == split && one.parts[1].x;
  if (warp_id() < N) {
    prepare_head(one.parts[0], 0, tile.first_head + min(warp_id(), tile.n_heads - 1),
                 room.q + warp_id() * padded(p.kv.k_dim));
  } else if (has_newest && warp_id() < N + 2) {  // blocks that share a key head write the same
    const int which = warp_id() - N + 1;
    float* values = room.partial + which * kMaxHeadDim;
    prepare_head(one.parts[which], 0, tile.kv_head, values);
    write_head<Kv>(p.step, p.kv, 0, tile.kv_head, which == 1, values);
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * padded(p.kv.v_dim); i += kThreads) room.result[i] = 0;
  if (static_cast<int>(threadIdx.x) < tile.n_rows) room.all[threadIdx.x] = {lowest_score(), 0.0f};
  __syncthreads();
  const bool is_split = n_splits > 1;
  for (int chunk = first + split; chunk <= last; chunk += n_splits) {
    attend_chunk<Kv, N>(p, tile, room, chunk, chunk - first, is_split);
  }
  if (is_split && !is_last_of(one.n_done + blockIdx.x, n_splits)) return;
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * p.kv.v_dim; i += kThreads) {
    const int r = i / p.kv.v_dim, dim = i % p.kv.v_dim, head = tile.first_head + r;
    float value = is_split ? merge_row(p, partial_of(p, tile, r, 0), last - first + 1, head, dim)
                           : room.result[r * padded(p.kv.v_dim) + dim] * final_factor(room.all[r], p.sinks, head);
    if (one.gate) value = gated(one.act, one.gate[static_cast<long long>(head) * one.gate_stride + dim], value);
    p.out[head * p.kv.v_dim + dim] = value;
  }
}

using Kv = KvOf<kKept>::Type;
ZINC_KERNEL_2 attend_one_f32(__grid_constant__ const AttendOneParams p) { attend_one<KvF32>(p); }
ZINC_KERNEL prepare_heads(__grid_constant__ const HeadsParams p) { prepare_heads<Kv>(p); }
ZINC_KERNEL kv_write(KvWriteParams p) { kv_write<Kv>(p); }
// Registers for one block a multiprocessor: loads of a position, or of sixteen rows of values, are under way at once.
extern "C" __global__ void __launch_bounds__(256, 1) attention_2(__grid_constant__ const AttentionParams p) {
  attention<Kv, 2>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attention_4(__grid_constant__ const AttentionParams p) {
  attention<Kv, 4>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attention_8(__grid_constant__ const AttentionParams p) {
  attention<Kv, 8>(p);
}

}  // namespace zinc::simt
