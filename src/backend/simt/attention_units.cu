// Split-KV attention of many rows: sequences with few tokens in the step (gpu/attention_units.h). A block takes units in
// turn: consecutive chunks of a row, for heads that share keys, in the KV tiles of attention_decode_tile.h. Keys and
// values of earlier steps are loaded before wait_dependency(). A row with several units is merged by the block that
// finishes its last one. A program of this file begins with its compile-time shape, kShape.
#include "backend/simt/attention_decode_output.h"

namespace zinc::simt {

// The unit's queries as f16 to shared memory.
ZINC_DEVICE void load_queries(const DecodeBlock& block, long long token) {
  constexpr int kPieces = kKeyBlocks * 4;  // of eight elements
  const AttentionParams& p = block.p;
  const float* q = p.q + (token * p.n_heads + block.first_head) * kKeyDim;
  const int n_pieces = block.n_heads * kPieces;
  const auto has_piece = [&](int i) { return Kv::kTransformsKeys ? i - lane_id() < n_pieces : i < n_pieces; };
#pragma unroll 1
  for (int i = thread_of_unit(); has_piece(i); i += kThreads) {
    const int row = Kv::kTransformsKeys ? min(i / kPieces, block.n_heads - 1) : i / kPieces, dim = i % kPieces * 8;
    Vec8 x;
    if constexpr (kKeyDim % 4 == 0) {
      x = load_uncached(q + row * kKeyDim + dim, kKeyDim - dim);
    } else {
      for (int e = 0; e < 8; ++e) x.v[e] = dim + e < kKeyDim ? __ldcg(q + row * kKeyDim + dim + e) : 0.0f;
    }
    transform_query<Kv>(x.v);
    if (i >= n_pieces) break;
    const uint4 f16 = to_f16(x);
    u32* to = block.smem.q + row * kQueryStride + dim;
    reinterpret_cast<uint4*>(to)[0] = make_uint4(f16.x, 0, f16.y, 0);
    reinterpret_cast<uint4*>(to)[1] = make_uint4(f16.z, 0, f16.w, 0);
  }
}

// Quantizes the rows of a block, which begin and end at segments. REQUIRES: shared memory is free.
ZINC_DEVICE void write_q8(const DecodeBlock& block, int token, const DecodeOutput& result) {
  constexpr int kWidth = kRows * kValueDim;
  if constexpr (kWidth % kSegmentElems == 0 && kShape.heads_per_kv_head % kRows == 0) {
    float* staged = reinterpret_cast<float*>(&block.smem);
    result.write(staged + result.row * kValueDim);
    __syncthreads();
    const AttentionParams& p = block.p;
    for (int s = thread_of_unit() / 32; s < kWidth / kSegmentElems; s += kWarps) {
      quantize_segment(staged + s * kSegmentElems, p.q8, p.q8_block, token,
                       block.first_head * kValueDim / kSegmentElems + s);
    }
  }
}

ZINC_DEVICE AttentionUnit load_unit(const AttentionUnit* from) {
  const int4 a = reinterpret_cast<const int4*>(from)[0], b = reinterpret_cast<const int4*>(from)[1];
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

// Prefetches the first tiles of a unit to L2, and its pages' ids to L1.
ZINC_DEVICE void prefetch_unit(const AttentionParams& p, DecodeSmem& smem, int i, int tile_group) {
  const DecodeBlock block(p, smem, load_unit(p.units + i), static_cast<int>(blockIdx.x));
  const int first = block.find_tile(tile_group, block.first), second = block.next_tile(first, tile_group);
  if (first >= 0) block.prefetch(first, block.page_ids(first));
  if (second >= 0) block.prefetch(second, block.page_ids(second));
}

// A block's unit and its row, in shared memory to save registers.
struct UnitRow {
  int index, token, n_units, first_partial;
};

// The loads of a block's first unit begin before the wait.
ZINC_DEVICE void attend_unit(const AttentionParams& p, DecodeSmem& smem, UnitRow& row, int i) {
  const bool is_first = i == static_cast<int>(blockIdx.y);
  const AttentionUnit unit = load_unit(p.units + i);
  const DecodeBlock block(p, smem, unit, static_cast<int>(blockIdx.x));
  const bool has_tiles = block.warp_group < kWarpGroups;
  // Warps without tiles prefetch what the others load later: the next tiles, and the block's next unit.
  const int tile_group = has_tiles ? block.warp_group : block.warp_group - kWarpGroups;
  int current = tile_group < kWarpGroups ? block.find_tile(tile_group, block.first) : -1;
  int next = block.next_tile(current, tile_group);
  int2 pages = block.page_ids(current), next_pages = block.page_ids(next);
  if (!has_tiles) {
    if (next >= 0) block.prefetch(next, next_pages);
    const int next_unit = i + static_cast<int>(gridDim.y);
    if (next_unit < *p.n_units && tile_group < kWarpGroups) prefetch_unit(p, smem, next_unit, tile_group);
    current = next = -1;
  } else if (!is_first || Kv::kBits == 16 || block.is_cached(current, unit.n_cached)) {
    block.load<true>(current, pages, is_first ? unit.n_cached - 1 : block.position);
  }
  DecodeKvTile kv_tile(block);
  DecodeOutput result(block);
  if (threadIdx.x == 0) row = {i, unit.token, unit.n_units, unit.first_partial};
  if (is_first) {
    __syncthreads();
    wait_dependency();
    if (has_tiles) block.load_new(current, pages, unit.n_cached);
  }
  load_queries(block, unit.token);
  result.load_gate(p, unit.token);
  __syncthreads();
  pages = next_pages;
  const int n_visible = block.last_visible() - block.first_visible() + 1;  // chunks
  const auto partials = [&] {
    const long long index = static_cast<long long>(row.first_partial) * p.n_heads + result.head * n_visible;
    return p.partial + index * kPartial;
  };
  SoftmaxState total = {neg_inf(), 0.0f};
  DecodeOutput::Vec total_value[kOuts];
#pragma unroll 1
  for (int chunk = block.first; chunk <= block.last; ++chunk) {
#pragma unroll 1
    while (block.chunk_of(current) == chunk) {
      kv_tile.attend(current, next, pages);
      current = next;
      if (next < 0) break;
      next = block.next_tile(next);
      pages = block.page_ids(next);
    }
    __syncthreads();
    const SoftmaxState all = result.merge_kv_tiles(smem, block.first_tile(chunk), block.last_tile(chunk));
    if (row.n_units > 1) {
      result.write_partial(partials() + static_cast<long long>(chunk - block.first_visible()) * kPartial, all);
    } else {
      result.add_chunk(total, total_value, all, chunk == block.first);
    }
    if (chunk < block.last) __syncthreads();
  }
  if (row.n_units > 1) {
    int* counter = p.done_counters + static_cast<long long>(row.token) * p.n_heads + block.first_head;
    if (!is_last_block(counter, row.n_units)) return;
    total = result.merge_chunks(smem, partials(), n_visible);
  } else {
#pragma unroll
    for (int k = 0; k < kOuts; ++k) result.value[k] = total_value[k];
  }
  result.finish(p, total);
  if (p.out) result.write(p.out + (static_cast<long long>(row.token) * p.n_heads + result.head) * kValueDim);
  if (!p.q8.q) return;
  __syncthreads();  // chunks in shared memory have been read
  write_q8(block, row.token, result);
}

// Grid: head tiles; blocks that take the units in turn.
// Two blocks per SM, but for small heads before Hopper, which would spill.
#if __CUDA_ARCH__ >= 900
constexpr int kMinBlocks = 2;
#else
constexpr int kMinBlocks = kKeyDim <= 64 ? 1 : 2;
#endif
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks)
    attention_units(__grid_constant__ const AttentionParams p) {
  extern __shared__ float4 shared[];
  launch_dependents();
  prefetch_params(p);
  DecodeSmem& smem = *reinterpret_cast<DecodeSmem*>(shared);
  __shared__ UnitRow row;
  int i = static_cast<int>(blockIdx.y);
  if (i >= *p.n_units) return wait_dependency();
#pragma unroll 1
  do {
    attend_unit(p, smem, row, i);
    i = row.index + static_cast<int>(gridDim.y);
    __syncthreads();
  } while (i < *p.n_units);
}

}  // namespace zinc::simt
