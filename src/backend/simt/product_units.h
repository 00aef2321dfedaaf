// What a block of product.cu has to multiply: units of panels, and where they lie. A program that includes this begins
// with kShape.
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

constexpr int kInputSegments = segments_of(kShape.n_in), kLastGroups = last_groups_of(kShape.n_in);
constexpr int kUnits = units_of(kShape);  // of a panel
constexpr int kRanks = kShape.n_ranks, kRankRows = kPanelRows / kRanks;
constexpr bool kIsGate = kShape.act != kNoAct, kHasExperts = kShape.n_used + kShape.n_mixed > 0;
constexpr ProductRoom kRoom = room_of(kShape);

// The experts of the row, in shared memory.
struct Used {
  int ids[kMaxUsed];
  float weights[kMaxUsed];
};

// A gate's two matrices take turns, segment by segment; other terms come one after the other.
ZINC_DEVICE int segment_of(int unit) { return kIsGate ? unit / 2 : unit % kInputSegments; }
ZINC_DEVICE int input_of(int unit) { return kIsGate ? unit / 2 : unit; }  // of the segments of all rows
ZINC_DEVICE int groups_of(int s) {
  return kLastGroups == kSegmentGroups || s + 1 < kInputSegments ? kSegmentGroups : kLastGroups;
}

// Which units of each panel are the block's.
struct RankUnits {
  int begin, end;
  ZINC_DEVICE RankUnits() {
    const int rank = kRanks > 1 ? cluster_rank() : 0;
    begin = kUnits * rank / kRanks;
    end = kUnits * (rank + 1) / kRanks;
  }
  ZINC_DEVICE int count() const { return kUnits % kRanks == 0 ? kUnits / kRanks : end - begin; }
};

// Bytes of a format's panels.
template <class F>
struct PanelBytes {
  static constexpr int kSegment = panel_segment_bytes(F::kHeaderBytes, F::kGroupBytes);
  static constexpr int kLast = kPanelRows * (F::kHeaderBytes + kLastGroups * F::kGroupBytes);
  static constexpr long long kAll = (kInputSegments - 1) * static_cast<long long>(kSegment) + kLast;
};

// Panels of all parts of a class, or of all used experts, in one row.
struct Panels {
  const ProductParams& p;
  const int* experts;
  int first_part, begin, end;  // panels of the cluster

  ZINC_DEVICE Panels(const ProductParams& params, const ProductClass& c, const int* used)
      : p(params), experts(used), first_part(c.first_part) {
    const int cluster = (static_cast<int>(blockIdx.x) - c.first_block) / kRanks;
    begin = cluster * c.each + min(cluster, c.n_more);
    end = begin + c.each + (cluster < c.n_more ? 1 : 0);
  }
  ZINC_DEVICE int count() const { return end - begin; }
  // Which part, or which used expert, a panel belongs to; its place there is left in `panel`.
  ZINC_DEVICE int owner(int& panel) const {
    if constexpr (kShape.n_used > 0) {
      const int used = panel / kShape.n_panels;
      panel -= used * kShape.n_panels;
      return used;
    } else if constexpr (kShape.n_parts == 1) {
      return 0;
    } else {
      int i = first_part;
#pragma unroll 1
      while (panel >= p.parts[i].n_panels) panel -= p.parts[i++].n_panels;
      return i;
    }
  }
  ZINC_DEVICE const ProductPart& part(int owned_by) const {
    return p.parts[kShape.n_used > 0 || kShape.n_parts == 1 ? 0 : owned_by];
  }
};

// One of a block's units.
struct Turn {
  int panel, unit;
  ZINC_DEVICE Turn(const RankUnits& units, int first) {
    panel = first / units.count();
    unit = units.begin + first - panel * units.count();
  }
  ZINC_DEVICE void advance(const RankUnits& units, int step) {
    unit += step;
#pragma unroll 1
    while (unit >= units.end) {
      unit -= units.count();
      ++panel;
    }
  }
};

// Where a unit lies: which of the used experts has it may be known before it is known who that is.
struct Place {
  const u8* from;  // of the first expert
  int expert;      // less than zero: none
  int n_bytes;

  template <class F>
  ZINC_DEVICE void find(const Panels& panels, const Turn& turn) {
    int panel = panels.begin + turn.panel;
    const int which = panels.owner(panel), s = segment_of(turn.unit);
    const ProductPart& part = panels.part(which);
    from = part.bytes + panel * PanelBytes<F>::kAll + s * static_cast<long long>(PanelBytes<F>::kSegment);
    expert = kShape.n_used > 0 ? which : -1;
    n_bytes = kLastGroups < kSegmentGroups && s + 1 == kInputSegments ? PanelBytes<F>::kLast : PanelBytes<F>::kSegment;
    if constexpr (kIsGate) {
      if (turn.unit % 2 != 0) from += part.last - part.bytes;
    } else if constexpr (kShape.n_mixed > 0) {
      expert = turn.unit / kInputSegments;
      if (expert == kShape.n_mixed) {
        from += part.last - part.bytes;
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
