// The work tiles of a block of the gemv kernels and their addresses. REQUIRES: kShape.
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

constexpr int kInputSegments = segment_count(kShape.n_in), kLastGroups = last_segment_groups(kShape.n_in);
constexpr int kPanelTiles = tiles_per_panel(kShape);
constexpr int kColumns = kShape.n_columns, kTokens = kShape.n_tokens;
static_assert(kColumns == 1 || kTokens == 1);
constexpr bool kUsesMma = kColumns > 2;  // else dp4a, column by column
constexpr int kClusterSize = kShape.cluster_size, kBlockRows = kPanelRows / kClusterSize;
constexpr int kGemvThreads = gemv_threads(kShape), kGemvWarps = 2 * kShape.n_warp_pairs;
constexpr bool kHasBulkCopies = kShape.has_bulk_copies != 0;
static_assert(kHasBulkCopies || kClusterSize == 1);
constexpr int kBlocksPerSm = kHasBulkCopies ? 2 : 1;  // of two launches, if there is dependent launch
constexpr bool kIsGlu = tiles_per_input_segment(kShape) > 1;
constexpr GemvSmem kSmem = gemv_smem(kShape);

// The block's token, of kTokens with as many blocks each, and its index among the token's blocks.
ZINC_DEVICE int block_token() { return kTokens == 1 ? 0 : static_cast<int>(blockIdx.x) / kShape.blocks_per_token; }
ZINC_DEVICE int block_of_token() {
  return static_cast<int>(blockIdx.x) - (kTokens == 1 ? 0 : block_token() * kShape.blocks_per_token);
}

// Tiles of a GLU's gate and up alternate; those of other matrices follow each other.
ZINC_DEVICE int k_segment(int tile) { return kIsGlu ? tile / 2 : tile % kInputSegments; }
ZINC_DEVICE int input_segment(int tile) { return kIsGlu ? tile / 2 : tile; }  // over all input rows
ZINC_DEVICE int groups_of(int s) {
  return kLastGroups == kSegmentGroups || s + 1 < kInputSegments ? kSegmentGroups : kLastGroups;
}

// The block's tiles of each panel.
struct BlockTiles {
  int begin, end;
  ZINC_DEVICE BlockTiles() {
    const int rank = kClusterSize > 1 ? cluster_rank() : 0;
    begin = kPanelTiles * rank / kClusterSize;
    end = kPanelTiles * (rank + 1) / kClusterSize;
  }
  ZINC_DEVICE int count() const { return kPanelTiles % kClusterSize == 0 ? kPanelTiles / kClusterSize : end - begin; }
};

// Sizes of a format's panels.
template <class F>
struct PanelBytes {
  static constexpr int kSegment = panel_segment_bytes(F::kHeaderBytes, F::kGroupBytes);
  static constexpr int kLast = kPanelRows * (F::kHeaderBytes + kLastGroups * F::kGroupBytes);
  static constexpr long long kAll = (kInputSegments - 1) * static_cast<long long>(kSegment) + kLast;
};

// The panels of a share: numbered consecutively over all parts of a problem, or over all selected experts.
struct PanelRange {
  int begin, end;
  ZINC_DEVICE PanelRange(const PanelSplit& split, int share) {
    begin = share * split.panels_per_cluster + min(share, split.n_extra);
    end = begin + split.panels_per_cluster + (share < split.n_extra ? 1 : 0);
  }
  ZINC_DEVICE int count() const { return end - begin; }
};

// Iterates over a block's tiles.
struct TileCursor {
  int panel, tile;
  ZINC_DEVICE TileCursor(const BlockTiles& tiles, int first) {
    panel = first / tiles.count();
    tile = tiles.begin + first - panel * tiles.count();
  }
  ZINC_DEVICE void advance(const BlockTiles& tiles, int step) {
    tile += step;
#pragma unroll 1
    while (tile >= tiles.end) {
      tile -= tiles.count();
      ++panel;
    }
  }
};

// Address of a tile. The index of its expert among the selected ones is known before the expert itself is.
struct TileSource {
  const u8* from;  // in expert 0
  int expert;      // index among the selected experts; negative: none
  int n_bytes;

  // Segment s of a panel of `matrix`.
  template <class F>
  ZINC_DEVICE void find(const u8* matrix, int panel, int s) {
    from = matrix + panel * PanelBytes<F>::kAll + s * static_cast<long long>(PanelBytes<F>::kSegment);
    expert = -1;
    n_bytes = kLastGroups < kSegmentGroups && s + 1 == kInputSegments ? PanelBytes<F>::kLast : PanelBytes<F>::kSegment;
  }
  // The tile of a part of one matrix, or of a GLU's gate and up.
  template <class F, class Part>
  ZINC_DEVICE void find(const Part& part, int panel, int tile) {
    find<F>(part.matrix.bytes, panel, k_segment(tile));
    if constexpr (kIsGlu) {
      if (tile % 2 != 0) from += part.up.bytes - part.matrix.bytes;
    }
  }
};

}  // namespace zinc::simt
