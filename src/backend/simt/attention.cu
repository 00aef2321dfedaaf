// Attention over the paged KV cache, without tensor cores.
// Positions are cut into aligned chunks of 256. Each chunk has its own softmax (max, sum, P * V); chunks are merged in
// order by one function. So a row's result is bit-identical whether one block loops over its chunks or many blocks
// split them (split-KV, gpu/attention_units.h), and whatever rows share a block.
// A program of this file begins with a file of kv_format/.
#include "backend/simt/attention_heads.h"

namespace zinc::simt {

// ---- KV cache write ----

// One warp per 32 elements of a token's key or value head.
template <class Kv>
ZINC_DEVICE void kv_write(const KvWriteParams& p) {
  launch_dependents();
  wait_dependency();
  const int k_blocks = padded(p.kv.k_dim) / 32, v_blocks = padded(p.kv.v_dim) / 32, per_head = k_blocks + v_blocks;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  const int t = index / (per_head * p.kv.kv_heads), head = index / per_head % p.kv.kv_heads;
  if (t >= p.step.counts[kTokens]) return;
  const bool is_key = index % per_head < k_blocks;
  const int block = is_key ? index % per_head : index % per_head - k_blocks;
  const int dim = is_key ? p.kv.k_dim : p.kv.v_dim, i = block * 32 + lane_id();
  const float* from = (is_key ? p.k : p.v) + (static_cast<long long>(t) * p.kv.kv_heads + head) * dim;
  write_block<Kv>(p.kv, keys_at(p.step, p.kv, t, head), is_key, p.step.positions[t] % kPageTokens, block,
                  i < dim ? from[i] : 0.0f);
}

// Norm and RoPE, one warp per head of q, k or v, of up to 256 elements.
template <class Kv>
ZINC_DEVICE void prepare_heads(const HeadsParams& p) {
  __shared__ float heads[kWarps][kSegmentElems];
  launch_dependents();
  prefetch_params(p);
  const int n_heads = p.parts[0].n_heads + p.parts[1].n_heads + p.parts[2].n_heads;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id(), t = index / n_heads;
  if (t >= p.step.counts[kTokens]) return wait_dependency();
  int head = index % n_heads, part = kQuery;
  for (; head >= p.parts[part].n_heads; ++part) head -= p.parts[part].n_heads;
  const HeadInput& input = p.parts[part];
  float* values = heads[warp_id()];
  const SegmentHead segment(input, t, head);
  u8* keys = part > kQuery ? keys_at(p.step, p.kv, t, head) : nullptr;
  int page_offset = p.step.positions[t] % kPageTokens;
  keep_in_register(keys);
  keep_in_register(page_offset);
  wait_dependency();
  segment.prepare(values);
  if (part > kQuery) return write_head<Kv>(p.kv, keys, part == kKey, page_offset, values);
  float* out = p.q_out + (static_cast<long long>(t) * input.n_heads + head) * input.dim;
  for (int i = lane_id(); i < input.dim; i += 32) out[i] = values[i];
}

// ---- attention ----

// The query rows of a block: consecutive tokens of one sequence times heads that share keys.
struct Tile {
  int seq, first_token, n_tokens, kv_head, first_head, n_heads, n_rows;
  int first_position;  // of the first token
  int oldest;          // position visible to any of them
  float* partial;      // of the only token: its partial results, for split-KV
  int n_partials;      // per head
  ZINC_DEVICE int position(int row) const { return first_position + row / n_heads; }
  ZINC_DEVICE int last_position() const { return first_position + n_tokens - 1; }
};

// Shared memory of a block.
struct Smem {
  float* q;             // [rows][padded k_dim]
  float* scores;        // [rows][kChunkPositions]
  float* partial;       // [kWarps][rows][128]
  float* result;        // [rows][padded v_dim]
  SoftmaxState* all;    // [rows]
  SoftmaxState* chunk;  // [rows]
};

template <int N>
ZINC_DEVICE Smem smem_layout(const KvLayer& kv, void* shared) {
  Smem smem;
  smem.partial = static_cast<float*>(shared);
  smem.scores = smem.partial + kWarps * N * 128;
  smem.q = smem.scores + N * kChunkPositions;
  smem.result = smem.q + N * padded(kv.k_dim);
  smem.all = reinterpret_cast<SoftmaxState*>(smem.result + N * padded(kv.v_dim));
  smem.chunk = smem.all + N;
  return smem;
}

// Scores of one position per thread with every row; minus infinity if it is masked.
template <class Kv, int N>
ZINC_DEVICE void score_chunk(const AttentionParams& p, const Tile& tile, const Smem& smem, int first) {
  constexpr int kPieces = 32 / Kv::kPieceElems;
  const int position = first + static_cast<int>(threadIdx.x), k_dim = padded(p.kv.k_dim);
  const bool is_visible = position >= tile.oldest && position <= tile.last_position();
  float score[N] = {};
  if (is_visible) {
    const int page = page_of(p.step, p.kv.group, tile.seq, position), page_offset = position % kPageTokens;
    const u8* keys = head_of(p.kv, page, tile.kv_head);
#pragma unroll(N <= 2 ? 4 : 2)
    for (int block = 0; block < k_dim / 32; ++block) {
      const float scale = Kv::key_scale(keys, p.kv.k_dim, page_offset, block);
      uint4 loaded[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        loaded[j] = *reinterpret_cast<const uint4*>(keys + ((block * kPieces + j) * kPageTokens + page_offset) * 16);
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
          const float4 q = *reinterpret_cast<const float4*>(smem.q + r * k_dim + block * 32 + i);
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
    const bool is_visible_to_row = is_visible && position <= newest && (p.window == 0 || position > newest - p.window);
    smem.scores[r * kChunkPositions + threadIdx.x] = is_visible_to_row ? s : neg_inf();
  }
}

// One warp per row: scores become softmax probabilities, not yet normalized.
ZINC_DEVICE void softmax_chunk(const Tile& tile, const Smem& smem) {
  const int r = warp_id();
  if (r >= tile.n_rows) return;
  float* scores = smem.scores + r * kChunkPositions;
  float row_max = neg_inf(), sum = 0;
  for (int i = lane_id(); i < kChunkPositions; i += 32) row_max = fmaxf(row_max, scores[i]);
  row_max = warp_max(row_max, 32);
  for (int i = lane_id(); i < kChunkPositions; i += 32) {
    const float prob = row_max == neg_inf() ? 0.0f : expf(scores[i] - row_max);
    scores[i] = prob;
    sum += prob;
  }
  sum = warp_sum(sum, 32);
  if (lane_id() == 0) smem.chunk[r] = {row_max, sum};
}

// P * V: warp w has page w of the chunk, four dimensions per lane, 128 per pass. Masked positions have probability zero
// and read the nearest visible position.
template <class Kv, int N>
ZINC_DEVICE void pv_chunk(const AttentionParams& p, const Tile& tile, const Smem& smem, int first, int first_dim) {
  constexpr int kInFlight = N <= 2 ? 16 : 8;  // loads in flight
  const int v_dim = padded(p.kv.v_dim), i = first_dim + lane_id() * 4, page_first = first + warp_id() * kPageTokens;
  float4 sum[N] = {};
  const int begin = max(page_first, tile.oldest), end = min(page_first + kPageTokens, tile.last_position() + 1);
  if (begin < end && i < v_dim) {
    const u8* values = head_of(p.kv, page_of(p.step, p.kv.group, tile.seq, begin), tile.kv_head) + p.kv.value_begin;
    for (int from = 0; from < kPageTokens; from += kInFlight) {
      float4 v[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        v[j] = Kv::values(values, v_dim, max(begin, min(end - 1, page_first + from + j)) % kPageTokens, i);
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
#pragma unroll
        for (int r = 0; r < N; ++r) {
          const float prob = smem.scores[r * kChunkPositions + warp_id() * kPageTokens + from + j];
          sum[r].x = fmaf(prob, v[j].x, sum[r].x);
          sum[r].y = fmaf(prob, v[j].y, sum[r].y);
          sum[r].z = fmaf(prob, v[j].z, sum[r].z);
          sum[r].w = fmaf(prob, v[j].w, sum[r].w);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < N; ++r) {
    reinterpret_cast<float4*>(smem.partial + (warp_id() * N + r) * 128)[lane_id()] = sum[r];
  }
}

// A partial result of head `r` of the tile's only token.
ZINC_DEVICE float* partial_of(const AttentionParams& p, const Tile& tile, int r, int index) {
  return tile.partial + (static_cast<long long>(tile.first_head + r) * tile.n_partials + index) * (p.kv.v_dim + 2);
}

template <class Kv, int N>
ZINC_DEVICE void attend_chunk(const AttentionParams& p, const Tile& tile, const Smem& smem, int chunk,
                              int partial_index, bool is_split) {
  const int first = chunk * kChunkPositions;
  score_chunk<Kv, N>(p, tile, smem, first);
  __syncthreads();
  softmax_chunk(tile, smem);
  __syncthreads();
  for (int first_dim = 0; first_dim < p.kv.v_dim; first_dim += 128) {
    pv_chunk<Kv, N>(p, tile, smem, first, first_dim);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * 128; i += kThreads) {
      const int r = i / 128, dim = first_dim + i % 128;
      if (dim >= p.kv.v_dim) continue;
      float sum = smem.partial[r * 128 + i % 128];
      for (int w = 1; w < kWarps; ++w) sum += smem.partial[(w * N + r) * 128 + i % 128];
      if (is_split) {
        partial_of(p, tile, r, partial_index)[2 + dim] = sum;
      } else if (smem.chunk[r].max != neg_inf()) {
        SoftmaxState all = smem.all[r];
        float old_scale, new_scale;
        merge_softmax(all, smem.chunk[r], old_scale, new_scale);
        float& result = smem.result[r * padded(p.kv.v_dim) + dim];
        result = merge_value(result, sum, old_scale, new_scale);
      }
    }
    __syncthreads();
  }
  if (static_cast<int>(threadIdx.x) < tile.n_rows) {
    const int r = static_cast<int>(threadIdx.x);
    if (is_split) {
      float* to = partial_of(p, tile, r, partial_index);
      to[0] = smem.chunk[r].max;
      to[1] = smem.chunk[r].sum;
    } else if (smem.chunk[r].max != neg_inf()) {
      float old_scale, new_scale;
      merge_softmax(smem.all[r], smem.chunk[r], old_scale, new_scale);
    }
  }
  __syncthreads();
}

template <class Kv, int N>
ZINC_DEVICE void start_tile(const AttentionParams& p, const Tile& tile, const Smem& smem) {
  const int k_dim = padded(p.kv.k_dim), v_dim = padded(p.kv.v_dim);
  for (int i = static_cast<int>(threadIdx.x); i < N * k_dim; i += kThreads) {
    const int r = min(i / k_dim, tile.n_rows - 1), k = i % k_dim;  // rows past the last repeat it
    const long long token = tile.first_token + r / tile.n_heads, head = tile.first_head + r % tile.n_heads;
    float q[1] = {k < p.kv.k_dim ? p.q[(token * p.n_heads + head) * p.kv.k_dim + k] : 0.0f};
    transform_query<Kv>(q);
    smem.q[i] = q[0];
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * v_dim; i += kThreads) smem.result[i] = 0;
  if (static_cast<int>(threadIdx.x) < tile.n_rows) smem.all[threadIdx.x] = {neg_inf(), 0.0f};
  __syncthreads();
}

template <class Kv, int N>
ZINC_DEVICE void attend_tile(const AttentionParams& p, const Tile& tile, const Smem& smem) {
  start_tile<Kv, N>(p, tile, smem);
  for (int chunk = tile.oldest / kChunkPositions; chunk <= tile.last_position() / kChunkPositions; ++chunk) {
    attend_chunk<Kv, N>(p, tile, smem, chunk, 0, false);
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * p.kv.v_dim; i += kThreads) {
    const int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    const long long token = tile.first_token + r / tile.n_heads, head = tile.first_head + r % tile.n_heads;
    const float factor = final_factor(smem.all[r], p.sinks, static_cast<int>(head));
    const float value = smem.result[r * padded(p.kv.v_dim) + dim] * factor;
    p.out[(token * p.n_heads + head) * p.kv.v_dim + dim] =
        apply_gate(p, p.act, token, static_cast<int>(head), dim, value);
  }
  __syncthreads();
}

// A block's kv head and heads, and up to `end` - t tokens of the sequence of token t.
ZINC_DEVICE Tile find_tile(const AttentionParams& p, int t, int end) {
  const int heads_per_kv_head = p.n_heads / p.kv.kv_heads,
            tiles = (heads_per_kv_head + p.heads_per_tile - 1) / p.heads_per_tile;
  const int head_offset = static_cast<int>(blockIdx.x) % tiles * p.heads_per_tile;
  Tile tile;
  tile.seq = p.step.seq_of_token[t];
  tile.first_token = t;
  tile.n_tokens = min(end, p.step.seq_begin[tile.seq + 1]) - t;
  tile.kv_head = static_cast<int>(blockIdx.x) / tiles;
  tile.first_head = tile.kv_head * heads_per_kv_head + head_offset;
  tile.n_heads = min(p.heads_per_tile, heads_per_kv_head - head_offset);
  tile.n_rows = tile.n_tokens * tile.n_heads;
  tile.first_position = p.step.positions[t];
  tile.oldest = p.window > 0 ? max(0, tile.first_position - p.window + 1) : 0;
  tile.partial = p.partial;
  tile.n_partials = 0;
  return tile;
}

// Grid: head tiles, token tiles.
template <class Kv, int N>
ZINC_DEVICE void attention(const AttentionParams& p) {
  extern __shared__ float4 shared[];
  launch_dependents();
  wait_dependency();
  const int n_tokens = p.step.counts[kTokens], first = static_cast<int>(blockIdx.y) * p.tokens_per_tile;
  if (first >= n_tokens) return;
  const Smem smem = smem_layout<N>(p.kv, shared);
  const int end = min(n_tokens, first + p.tokens_per_tile);
  for (int t = first; t < end;) {  // tokens of one sequence at a time
    const Tile tile = find_tile(p, t, end);
    t += tile.n_tokens;
    if (p.prefill_tokens && p.prefill_tokens[tile.first_token] != tile.first_token) continue;  // split rows
    attend_tile<Kv, N>(p, tile, smem);
  }
}

// Writes the results of the tile's only token: merged in shared memory, or partial results of its chunks.
ZINC_DEVICE void write_row(const AttentionParams& p, const Tile& tile, const Smem& smem, bool is_split) {
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * p.kv.v_dim; i += kThreads) {
    const int r = i / p.kv.v_dim, dim = i % p.kv.v_dim, head = tile.first_head + r;
    const float value = is_split
                            ? merge_row_chunks(p, partial_of(p, tile, r, 0), tile.n_partials, head, dim)
                            : smem.result[r * padded(p.kv.v_dim) + dim] * final_factor(smem.all[r], p.sinks, head);
    p.out[(static_cast<long long>(tile.first_token) * p.n_heads + head) * p.kv.v_dim + dim] =
        apply_gate(p, p.act, tile.first_token, head, dim, value);
  }
}

// Grid: head tiles; blocks that take the units in turn.
template <class Kv, int N>
ZINC_DEVICE void attention_units(const AttentionParams& p) {
  extern __shared__ float4 shared[];
  launch_dependents();
  wait_dependency();
  const Smem smem = smem_layout<N>(p.kv, shared);
  const int n_units = *p.n_units;
  for (int i = static_cast<int>(blockIdx.y); i < n_units; i += static_cast<int>(gridDim.y)) {
    const AttentionUnit unit = p.units[i];
    Tile tile = find_tile(p, unit.token, unit.token + 1);
    const int first = tile.oldest / kChunkPositions;
    tile.n_partials = tile.first_position / kChunkPositions - first + 1;
    tile.partial = p.partial + static_cast<long long>(unit.first_partial) * p.n_heads * (p.kv.v_dim + 2);
    const bool is_split = unit.n_units > 1;
    start_tile<Kv, N>(p, tile, smem);
    for (int chunk = unit.first_chunk; chunk < unit.end_chunk; ++chunk) {
      attend_chunk<Kv, N>(p, tile, smem, chunk, chunk - first, is_split);
    }
    int* counter = p.done_counters + static_cast<long long>(unit.token) * p.n_heads + tile.first_head;
    if (!is_split || is_last_block(counter, unit.n_units)) write_row(p, tile, smem, is_split);
    __syncthreads();
  }
}

// ---- decode ----

// Prefetches the pages of a chunk to L2, one per warp.
ZINC_DEVICE void prefetch_chunk(const AttentionParams& p, const Tile& tile, int chunk) {
  constexpr int kLine = 128;
  const int first = chunk * kChunkPositions + warp_id() * kPageTokens;
  if (first > tile.last_position() || first + kPageTokens <= tile.oldest) return;
  const u8* head = head_of(p.kv, page_of(p.step, p.kv.group, tile.seq, first), tile.kv_head);
  for (int offset = lane_id() * kLine; offset < p.kv.head_bytes; offset += 32 * kLine) prefetch_l2(head + offset);
}

// Grid: head tiles; 1; KV splits.
template <class Kv>
ZINC_DEVICE void attention_decode(const AttentionDecodeParams& params) {
  constexpr int N = 2;
  extern __shared__ float4 shared[];
  const AttentionParams& p = params.attention;
  launch_dependents();
  prefetch_params(params);
  const Smem smem = smem_layout<N>(p.kv, shared);
  const int heads_per_kv_head = p.n_heads / p.kv.kv_heads, tiles = (heads_per_kv_head + N - 1) / N;
  Tile tile;
  tile.seq = 0;
  tile.first_token = 0;
  tile.n_tokens = 1;
  tile.kv_head = static_cast<int>(blockIdx.x) / tiles;
  const int head_offset = static_cast<int>(blockIdx.x) % tiles * N;
  tile.first_head = tile.kv_head * heads_per_kv_head + head_offset;
  tile.n_heads = tile.n_rows = min(N, heads_per_kv_head - head_offset);
  tile.first_position = p.step.positions[0];  // uploaded before the step's first kernel
  tile.oldest = p.window > 0 ? max(0, tile.first_position - p.window + 1) : 0;
  tile.partial = p.partial;
  const int first = tile.oldest / kChunkPositions, last = tile.first_position / kChunkPositions;
  tile.n_partials = last - first + 1;
  const int n_splits = min(static_cast<int>(gridDim.z), last - first + 1), split = static_cast<int>(blockIdx.z);
  if (split >= n_splits) return;
  prefetch_chunk(p, tile, first + split);
  wait_dependency();
  const bool has_newest = (last - first) % n_splits == split && params.parts[kKey].x;
  if (warp_id() < N) {
    float* values = smem.q + warp_id() * padded(p.kv.k_dim);
    prepare_head(params.parts[kQuery], 0, tile.first_head + min(warp_id(), tile.n_heads - 1), values);
    for (int i = lane_id(); Kv::kTransformsKeys && i < padded(p.kv.k_dim); i += 32) {
      float q[1] = {values[i]};
      transform_query<Kv>(q);
      values[i] = q[0];
    }
  } else if (has_newest && warp_id() < N + 2) {  // blocks that share a KV head write the same bytes
    const int part = warp_id() - N + kKey;
    float* values = smem.partial + part * kMaxHeadDim;
    prepare_head(params.parts[part], 0, tile.kv_head, values);
    write_head<Kv>(p.kv, keys_at(p.step, p.kv, 0, tile.kv_head), part == kKey, p.step.positions[0] % kPageTokens, values);
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.n_rows * padded(p.kv.v_dim); i += kThreads) smem.result[i] = 0;
  if (static_cast<int>(threadIdx.x) < tile.n_rows) smem.all[threadIdx.x] = {neg_inf(), 0.0f};
  __syncthreads();
  const bool is_split = n_splits > 1;
  for (int chunk = first + split; chunk <= last; chunk += n_splits) {
    attend_chunk<Kv, N>(p, tile, smem, chunk, chunk - first, is_split);
  }
  if (is_split && !is_last_block(p.done_counters + blockIdx.x, n_splits)) return;
  write_row(p, tile, smem, is_split);
}

// Without tensor cores; with them: attention_decode.cu.
ZINC_KERNEL_2_PER_SM attention_decode_f32(__grid_constant__ const AttentionDecodeParams p) { attention_decode<Kv>(p); }
ZINC_KERNEL prepare_heads(__grid_constant__ const HeadsParams p) { prepare_heads<Kv>(p); }
ZINC_KERNEL kv_write(KvWriteParams p) { kv_write<Kv>(p); }
// One block per SM: many loads are in flight in registers.
extern "C" __global__ void __launch_bounds__(256, 1) attention_2(__grid_constant__ const AttentionParams p) {
  attention<Kv, 2>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attention_units_2(__grid_constant__ const AttentionParams p) {
  attention_units<Kv, 2>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attention_4(__grid_constant__ const AttentionParams p) {
  attention<Kv, 4>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) attention_8(__grid_constant__ const AttentionParams p) {
  attention<Kv, 8>(p);
}

}  // namespace zinc::simt
