// The work tiles of a block of gemv.cu and their addresses. REQUIRES: kShape.
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

constexpr int kInputSegments = segment_count(kShape.n_in), kLastGroups = last_segment_groups(kShape.n_in);
constexpr int kPanelTiles = tiles_per_panel(kShape);
constexpr int kClusterSize = kShape.cluster_size, kBlockRows = kPanelRows / kClusterSize;
constexpr bool kIsGlu = kShape.act != kNoAct, kHasExperts = kShape.n_experts_used + kShape.n_combined > 0;
constexpr GemvSmem kSmem = gemv_smem(kShape);

// The experts of the row, in shared memory.
struct RoutedExperts {
  int ids[kMaxExpertsUsed];
  float weights[kMaxExpertsUsed];
};

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

// The panels of all parts of a problem, or of all selected experts, numbered consecutively.
struct Panels {
  const GemvParams& p;
  const int* experts;
  int first_part, begin, end;  // panels of the cluster

  ZINC_DEVICE Panels(const GemvParams& params, const GemvProblem& problem, const int* routed)
      : p(params), experts(routed), first_part(problem.first_part) {
    const int cluster = (static_cast<int>(blockIdx.x) - problem.first_block) / kClusterSize;
    begin = cluster * problem.panels_per_cluster + min(cluster, problem.n_extra);
    end = begin + problem.panels_per_cluster + (cluster < problem.n_extra ? 1 : 0);
  }
  ZINC_DEVICE int count() const { return end - begin; }
  // Index of a panel's part, or among the selected experts; `panel` becomes the index of the panel within it.
  ZINC_DEVICE int find_part(int& panel) const {
    if constexpr (kShape.n_experts_used > 0) {
      const int selected = panel / kShape.n_panels;
      panel -= selected * kShape.n_panels;
      return selected;
    } else if constexpr (kShape.n_parts == 1) {
      return 0;
    } else {
      int i = first_part;
#pragma unroll 1
      while (panel >= p.parts[i].n_panels) panel -= p.parts[i++].n_panels;
      return i;
    }
  }
  ZINC_DEVICE const GemvPart& part(int part_index) const {
    return p.parts[kShape.n_experts_used > 0 || kShape.n_parts == 1 ? 0 : part_index];
  }
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

  template <class F>
  ZINC_DEVICE void find(const Panels& panels, const TileCursor& cursor) {
    int panel = panels.begin + cursor.panel;
    const int part_index = panels.find_part(panel), s = k_segment(cursor.tile);
    const GemvPart& part = panels.part(part_index);
    from = part.bytes + panel * PanelBytes<F>::kAll + s * static_cast<long long>(PanelBytes<F>::kSegment);
    expert = kShape.n_experts_used > 0 ? part_index : -1;
    n_bytes = kLastGroups < kSegmentGroups && s + 1 == kInputSegments ? PanelBytes<F>::kLast : PanelBytes<F>::kSegment;
    if constexpr (kIsGlu) {
      if (cursor.tile % 2 != 0) from += part.second_matrix - part.bytes;
    } else if constexpr (kShape.n_combined > 0) {
      expert = cursor.tile / kInputSegments;
      if (expert == kShape.n_combined) {
        from += part.second_matrix - part.bytes;
        expert = -1;
      }
    }
  }
  ZINC_DEVICE const u8* bytes(const Panels& panels) const {
    if constexpr (!kHasExperts) return from;
    return expert < 0 ? from : from + panels.experts[expert] * panels.p.parts[0].matrix_bytes;
  }
};

}  // namespace zinc::simt
