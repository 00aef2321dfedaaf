// What attend_one.cu is compiled for, as constants, and the shared memory of one of its blocks. REQUIRES: kShape.
#pragma once

#include "backend/simt/attention_mma.h"

namespace zinc::simt {

using Kv = KvOf<kShape.kv_format>::Type;

constexpr int kKeyDim = kShape.k_dim, kValueDim = kShape.v_dim, kRows = kShape.tile_heads;
constexpr int kKeyBlocks = (kKeyDim + 31) / 32, kValueRow = (kValueDim + 31) / 32 * 32;
constexpr int kGroupWarps = warps_of_unit(kShape), kGroups = units_at_once(kShape), kTiles = 8 / kGroupWarps;
constexpr int kHeadRow = attend_head_floats(kShape);
constexpr int kQueryRows = 8, kQueryStride = kKeyBlocks * 32 + 4;          // in pairs: each has a zero beside it
constexpr int kSegments = (kHeadRow + kSegmentElems - 1) / kSegmentElems;  // of a head: eight numbers a lane each
// Results: warps that share a row, neighbouring numbers of a lane, and how many of these it has.
constexpr int kRowWarps = kWarps / kRows, kWide = kValueDim % 2 == 0 ? 2 : 1, kTurn = kRowWarps * 32 * kWide;
constexpr int kPartial = partial_row(kValueDim);  // of a row's result of a chunk: largest, sum, two more, values
constexpr int kSumRow = kValueRow + 8;            // of a unit's results: rows start in different banks
constexpr int kOuts = (kValueDim + kTurn - 1) / kTurn;
static_assert(kRows <= 6, "a warp for each head, two for the key and the value; eight rows of a unit");

// Shared memory of a block.
struct OneRoom {
  u8 units[kGroups][unit_bytes(kKeyDim, kValueDim)];
  float heads[kRows + 2][kHeadRow];  // queries and the key before they are turned
  u32 q[kQueryRows * kQueryStride];  // queries as halves: a pair, zero for the row eight further on, and so on
  u32 weights[kGroups][kUnitRows * (kWeightStride / 2)];
  float exchange[kGroups][2 * kGroupWarps * kUnitRows];
  float values[kChunkUnits][kRows][kSumRow];  // results of units
  Running runs[kChunkUnits][kRows];
  float sinks[kRows];  // if there are any
};
static_assert(sizeof(OneRoom) <= attend_room_bytes(kShape));
// Chunks whose results of all rows have room where everything else was.
constexpr int kRoomChunks = sizeof(OneRoom) / (kRows * kPartial * 4), kBatch = kRoomChunks < 64 ? kRoomChunks : 64;
constexpr int kScans = (kBatch + 31) / 32;  // of a warp, a chunk a lane
static_assert(kBatch >= 1);

// A place in the room, by its distance from the begin.
template <class T>
ZINC_DEVICE T& in_room(OneRoom& room, int at) {
  return *reinterpret_cast<T*>(reinterpret_cast<u8*>(&room) + at);
}
ZINC_DEVICE int place_of(const OneRoom& room, const void* at) {
  return static_cast<int>(static_cast<const u8*>(at) - reinterpret_cast<const u8*>(&room));
}

}  // namespace zinc::simt
