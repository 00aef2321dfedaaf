#include "backend/simt/host/attention_shape.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace zinc::simt::host {
namespace {

constexpr int kMmaRows = 16;                             // query rows of an MMA tile
constexpr int kMaxUnitHeads = 8;                         // query rows of an MMA tile of attention_units
constexpr int kReservedBytes = 1024, kStaticBytes = 64;  // shared memory of a block: the driver's, static variables

// Queries in f16, and for each set of rows its softmax probabilities (P) and reduce_buf.
int64_t mma_floats(const simt::KvLayer& kv, int64_t n_queries, int64_t n_sets, int n_warps) {
  return n_queries * (ceil_div(kv.k_dim, 32) * 16 + 4) + n_sets * (kMmaRows * 36 + 2 * kMmaRows * n_warps);
}

int unit_smem_bytes(const simt::KvLayer& kv, int tile_heads, bool prepares_heads = false) {
  return simt::attention_decode_smem_bytes(
      {.k_dim = kv.k_dim, .v_dim = kv.v_dim, .tile_heads = tile_heads, .prepares_heads = prepares_heads ? 1 : 0});
}

}  // namespace

int mma_warps(const simt::KvLayer& kv, const gpu::KvFormat& format, const DeviceLimits& device) {
  const int n = format.name == "f32" || !device.has_tensor_cores() ? 0 : simt::warps_per_kv_tile(kv.k_dim, kv.v_dim);
  if (n == 0 || unit_smem_bytes(kv, 1, /*prepares_heads=*/true) > device.max_shared_bytes) return 0;
  const size_t prefill_bytes = prefill_smem_bytes(kv, {.n_warps = n, .n_sets = 1, .act = kNoAct, .has_q8 = 0});
  return prefill_bytes <= static_cast<size_t>(device.max_shared_bytes) ? n : 0;
}

// Two sets of rows per warp group share the loaded keys and values, if shared memory allows. With all positions of a
// tile in one warp they also need all its registers, which suffice only as compiled for Hopper.
simt::AttentionMmaShape mma_shape(const simt::KvLayer& kv, int n_warps, const DeviceLimits& device) {
  const simt::AttentionMmaShape two_sets{.n_warps = n_warps, .n_sets = 2, .act = kNoAct, .has_q8 = 0};
  const bool has_two_sets = prefill_smem_bytes(kv, two_sets) <= static_cast<size_t>(device.max_shared_bytes) &&
                            (n_warps > 1 || device.has_wgmma());
  return has_two_sets ? two_sets : simt::AttentionMmaShape{.n_warps = n_warps, .n_sets = 1, .act = kNoAct, .has_q8 = 0};
}

int prefill_rows(const simt::AttentionMmaShape& shape) {
  return simt::kWarps / shape.n_warps * shape.n_sets * kMmaRows;
}

size_t prefill_smem_bytes(const simt::KvLayer& kv, const simt::AttentionMmaShape& shape) {
  const int64_t all_sets = simt::kWarps / shape.n_warps * shape.n_sets;
  const int64_t accumulators =
      simt::accumulates_in_registers(shape.n_warps) ? 0 : shape.n_sets * simt::kAccumulatorFloats * simt::kThreads;
  const int64_t floats = accumulators + mma_floats(kv, prefill_rows(shape), all_sets, shape.n_warps);
  return sizeof(float) * static_cast<size_t>(floats) + static_cast<size_t>(simt::kv_tile_bytes(kv.k_dim, kv.v_dim));
}

int unit_tile_heads(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device) {
  const int two_per_sm = (device.max_shared_bytes - kReservedBytes) / 2 - kStaticBytes;
  for (const int max_bytes : {two_per_sm, device.max_shared_bytes}) {
    for (int n_tiles = 1; n_tiles <= heads_per_kv_head; ++n_tiles) {
      const int tile_heads = static_cast<int>(ceil_div(heads_per_kv_head, n_tiles));
      if (tile_heads <= kMaxUnitHeads && unit_smem_bytes(kv, tile_heads) <= max_bytes) return tile_heads;
    }
  }
  return 1;
}

int decode_tile_heads(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device) {
  constexpr int kMaxTileHeads = 6;  // one warp per head, and two for the new key and value
  for (int n_tiles = 1;; ++n_tiles) {
    const int tile_heads = static_cast<int>(ceil_div(heads_per_kv_head, n_tiles));
    if (tile_heads == 1 || (tile_heads <= kMaxTileHeads &&
                            unit_smem_bytes(kv, tile_heads, /*prepares_heads=*/true) <= device.max_shared_bytes)) {
      return tile_heads;
    }
  }
}

bool has_whole_segments(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device) {
  const int n_warps = simt::warps_per_kv_tile(kv.k_dim, kv.v_dim);
  const int prefill_heads = std::min(heads_per_kv_head, prefill_rows(mma_shape(kv, n_warps, device)));
  const auto is_whole = [&](int tile_heads) {
    return heads_per_kv_head % tile_heads == 0 && tile_heads * kv.v_dim % simt::kSegmentElems == 0;
  };
  return is_whole(unit_tile_heads(kv, heads_per_kv_head, device)) && is_whole(prefill_heads) &&
         kMmaRows * kv.v_dim % simt::kSegmentElems == 0;
}

}  // namespace zinc::simt::host
