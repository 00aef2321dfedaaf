// Compile-time constants of attention_decode.cu and attention_units.cu, and their shared memory. REQUIRES: kShape.
#pragma once

#include "backend/simt/attention_mma.h"

namespace zinc::simt {

constexpr int kKeyDim = kShape.k_dim, kValueDim = kShape.v_dim, kRows = kShape.tile_heads;
constexpr int kKeyBlocks = (kKeyDim + 31) / 32, kValueRow = (kValueDim + 31) / 32 * 32;
constexpr int kGroupWarps = warps_per_kv_tile(kShape), kWarpGroups = kv_tiles_in_flight(kShape),
              kTiles = 8 / kGroupWarps;
constexpr int kHeadRow = head_row_floats(kShape);
constexpr int kQueryRows = 8, kQueryStride = kKeyBlocks * 32 + 4;          // f16 pairs, each followed by a zero
constexpr int kSegments = (kHeadRow + kSegmentElems - 1) / kSegmentElems;  // per head, eight elements per lane
// Outputs: warps per row, and vector width per lane.
constexpr int kRowWarps = kWarps / kRows, kVec = kValueDim % 2 == 0 ? 2 : 1, kOutStride = kRowWarps * 32 * kVec;
constexpr int kPartial = partial_row_floats(kValueDim);  // of a row and chunk: max, sum, two spare, values
constexpr int kTileRowFloats = kValueRow + 8;            // padded against bank conflicts
constexpr int kOuts = (kValueDim + kOutStride - 1) / kOutStride;
static_assert(kRows <= (kShape.prepares_heads ? 6 : 8),
              "MMA tiles of eight query rows; to prepare heads, a warp for each, two for the key and the value");

struct DecodeSmem {
  u8 kv_tiles[kWarpGroups][kv_tile_bytes(kKeyDim, kValueDim)];
  float heads[n_head_rows(kShape)][kHeadRow];  // queries and the key before RoPE
  u32 q[kQueryRows * kQueryStride];            // queries as f16: each pair is followed by a zero, for MMA row + 8
  u32 p_tile[kWarpGroups][kMmaRows * (kProbStride / 2)];
  float reduce_buf[kWarpGroups][2 * kGroupWarps * kMmaRows];
  float values[kChunkTiles][kRows][kTileRowFloats];  // results of KV tiles
  SoftmaxState softmax_states[kChunkTiles][kRows];
  float sinks[kRows];  // if the model has attention sinks
};
static_assert(sizeof(DecodeSmem) <= attention_decode_smem_bytes(kShape));
// Chunks merged per batch: their results reuse all of the shared memory.
constexpr int kSmemChunks = sizeof(DecodeSmem) / (kRows * kPartial * 4), kBatch = kSmemChunks < 64 ? kSmemChunks : 64;
constexpr int kScans = (kBatch + 31) / 32;  // per warp, a chunk per lane
static_assert(kBatch >= 1);

// Shared memory addressed by byte offset.
template <class T>
ZINC_DEVICE T& smem_at(DecodeSmem& smem, int offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<u8*>(&smem) + offset);
}
ZINC_DEVICE int smem_offset(const DecodeSmem& smem, const void* ptr) {
  return static_cast<int>(static_cast<const u8*>(ptr) - reinterpret_cast<const u8*>(&smem));
}

}  // namespace zinc::simt
