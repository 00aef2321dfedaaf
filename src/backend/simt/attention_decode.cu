// Decode attention, fused: norm and RoPE of the heads, KV cache write, split-KV attention in KV tiles
// (attention_mma.h), and the merge of chunks by the last block that finishes a head. A program of this file begins with
// its compile-time shape, kShape. KV pages of earlier tokens and all weights are loaded before wait_dependency().
#include "backend/simt/attention_decode_output.h"

namespace zinc::simt {

// Grid: head tiles times KV splits; further blocks are idle. With dependent launch (Hopper and newer) blocks of two
// launches share an SM.
#if __CUDA_ARCH__ >= 900
constexpr int kMinBlocks = 2;
#else
constexpr int kMinBlocks = 1;
#endif
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks)
    attention_decode(__grid_constant__ const AttentionDecodeParams params) {
  extern __shared__ float4 shared[];
  launch_dependents();
  prefetch_params(params);
  DecodeSmem& smem = *reinterpret_cast<DecodeSmem*>(shared);
  const AttentionParams& p = params.attention;
  const DecodeBlock block(p, smem);
  if (block.split >= block.n_splits) return wait_dependency();
  int current = -1;  // the warp group's KV tile
  if (block.warp_group < kWarpGroups) current = block.find_tile(block.warp_group, block.first + block.split);
  int next = block.next_tile(current);
  int2 pages = block.page_ids(current);
  if (kShape.has_keys && block.warp_group < kWarpGroups) block.load(current, pages, block.position - 1);
  int part = block.part_of_warp();
  const DecodeHead head(params.parts[max(part, 0)], part <= kQuery ? block.first_head + warp_id() : block.kv_head,
                        smem_offset(smem, smem.heads[min(warp_id(), kRows + 1)]));
  HeadDestination destinations[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) destinations[s].init(block, part, DecodeHead::first_dim(s));
  DecodeKvTile kv_tile(block);
  DecodeOutput result(block);
  float* const partials = p.partial + static_cast<long long>(result.head) * p.n_chunks * kPartial;
  const int2 first_pages = pages;
  pages = block.page_ids(next);
  for (int* value : {&part, &current, &next, &pages.x, &pages.y}) keep_in_register(*value);
  if (!block.is_fully_cached(current)) cp_async_wait<0>();  // the new key and value are stored into the tile
  __syncthreads();
  wait_dependency();
  if (!kShape.has_keys && block.warp_group < kWarpGroups) block.load(current, first_pages, block.position);
  if (part >= 0) {
    Vec8 x[kSegments];
    head.compute(smem, x);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) destinations[s].store(block, x[s]);
  }
  result.load_gate(p, 0);
  __syncthreads();
#pragma unroll 1
  for (int chunk = block.first + block.split; chunk <= block.last; chunk += block.n_splits) {
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
    if (block.is_single()) {
      result.finish(p, all);
      return result.write(p.out + result.head * kValueDim);
    }
    result.write_partial(partials + static_cast<long long>(chunk - block.first) * kPartial, all);
    if (chunk + block.n_splits <= block.last) __syncthreads();
  }
  if (!is_last_block(p.done_counters + (result.head - result.row), block.n_splits)) return;
  const SoftmaxState all = result.merge_chunks(smem, partials, block.last - block.first + 1);
  result.finish(p, all);
  result.write(p.out + result.head * kValueDim);
}

}  // namespace zinc::simt
