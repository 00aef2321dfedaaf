// A head of the one token on its way into attention: what prepare_heads (attention_heads.h) makes of it, by a warp,
// with all that can be known before the wait worked out there.
#pragma once

#include "backend/simt/attend_one_room.h"

namespace zinc::simt {

// The eight from `from` on that are among n. Read past the first-level cache: it may hold what was there before the
// wait.
ZINC_DEVICE Eight load_fresh(const float* from, int n) {
  if (n >= 8) {
    const float4 a = __ldcg(reinterpret_cast<const float4*>(from));
    const float4 b = __ldcg(reinterpret_cast<const float4*>(from + 4));
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  Eight out = {{0, 0, 0, 0, 0, 0, 0, 0}};
  if constexpr (kKeyDim % 8 != 0 || kValueDim % 8 != 0) {
    for (int i = 0; i < 8; ++i) out.v[i] = i < n ? __ldcg(from + i) : 0.0f;
  }
  return out;
}

// Eight numbers as halves.
ZINC_DEVICE uint4 to_halves(const Eight& x) {
  return make_uint4(pack_halves(x.v[0], x.v[1]), pack_halves(x.v[2], x.v[3]), pack_halves(x.v[4], x.v[5]),
                    pack_halves(x.v[6], x.v[7]));
}

// How a lane's eight neighbours of a head are turned. One that is its pair's first: a cos - b sin; its second: a sin +
// b cos, as prepare_head has it.
struct OneTurn {
  int first, n_pairs;   // the first number's place in the head
  const float2* table;  // of that number's pair on
  int own, other;       // places in the room: of the eight, and of those they are turned with

  ZINC_DEVICE void init(const HeadPart& part, int its_first, int row) {
    first = its_first;
    n_pairs = part.n_pairs;
    const bool is_low = first < n_pairs;
    const int pair = kShape.turn == kTurnPairs ? first / 2 : is_low ? first : first - n_pairs;
    table = reinterpret_cast<const float2*>(part.table) + (is_turned() ? pair : 0);
    own = row + first * 4;
    other = own + (is_low ? n_pairs : -n_pairs) * 4;
    settle(n_pairs);
    settle(table);
    settle(own);
    settle(other);
  }
  ZINC_DEVICE bool is_turned() const { return first < 2 * n_pairs; }
  ZINC_DEVICE bool is_turned(int i) const { return kShape.turn == kTurnEights || first + i < 2 * n_pairs; }
  ZINC_DEVICE bool is_first(int i) const {
    if (kShape.turn == kTurnPairs) return i % 2 == 0;
    return kShape.turn == kTurnEights ? first < n_pairs : first + i < n_pairs;
  }

  ZINC_DEVICE void load(float2 (&by)[8]) const {
    if (!is_turned()) return;
    if (kShape.turn == kTurnRagged || (kShape.turn == kTurnPairs && !is_turned(7))) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int step = kShape.turn == kTurnPairs ? i / 2 : first < n_pairs && !is_first(i) ? i - n_pairs : i;
        if (is_turned(i)) by[i] = __ldcg(table + step);
      }
      return;
    }
    constexpr int kEach = kShape.turn == kTurnPairs ? 2 : 1;  // numbers of the eight that a pair has
#pragma unroll
    for (int i = 0; i < 8; i += 2 * kEach) {
      const float4 two = __ldcg(reinterpret_cast<const float4*>(table) + i / (2 * kEach));
#pragma unroll
      for (int k = 0; k < 2 * kEach; ++k) {
        by[i + k] = k < kEach ? make_float2(two.x, two.y) : make_float2(two.z, two.w);
      }
    }
  }
  ZINC_DEVICE void show(OneRoom& room, const Eight& x) const {
    if (kShape.turn == kTurnPairs || first >= kHeadRow) return;
    in_room<float4>(room, own) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    in_room<float4>(room, own + 16) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  }
  // REQUIRES: all lanes have shown theirs.
  ZINC_DEVICE void apply(OneRoom& room, const float2 (&by)[8], Eight& x) const {
    if (!is_turned()) return;
    Eight with;
    if constexpr (kShape.turn == kTurnEights) {
      const float4 a = in_room<float4>(room, other), b = in_room<float4>(room, other + 16);
      with = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int apart = is_first(i) ? n_pairs : -n_pairs;
        with.v[i] = kShape.turn == kTurnPairs ? x.v[i ^ 1]
                    : is_turned(i)            ? in_room<float>(room, own + (i + apart) * 4)
                                              : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float turned = fmaf(is_first(i) ? -1.0f : 1.0f, with.v[i] * by[i].y, x.v[i] * by[i].x);
      if (is_turned(i)) x.v[i] = turned;
    }
  }
};

// A warp's head on its way in, normed and turned as prepare_heads does it: eight neighbours a lane and segment.
struct OneHead {
  const float* from[kSegments];
  int dim, is_normed;
  float eps;
  Eight norm[kSegments];  // weights
  OneTurn turn[kSegments];

  // What nobody in this step writes; and the table of the rotation comes nearer. row: the head's place in the room.
  ZINC_DEVICE OneHead(const HeadPart& part, int head, int row)
      : dim(kKeyDim == kValueDim ? kKeyDim : part.dim), is_normed(part.is_normed), eps(part.eps) {
    settle(is_normed);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      from[s] = part.x + head * part.stride + at(s);
      settle(from[s]);
      norm[s] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (is_normed && part.norm_weight) norm[s] = load_fresh(part.norm_weight + at(s), dim - at(s));
      turn[s].init(part, at(s), row);
    }
    constexpr int kLinePairs = 16;
    if (lane_id() * kLinePairs < part.n_pairs) fetch_ahead(part.table + lane_id() * 2 * kLinePairs);
  }
  static ZINC_DEVICE int at(int s) { return s * kSegmentElems + lane_id() * 8; }

  ZINC_DEVICE void make(OneRoom& room, Eight (&x)[kSegments]) const {
    float2 by[kSegments][8];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) x[s] = load_fresh(from[s], dim - at(s));
#pragma unroll
    for (int s = 0; s < kSegments; ++s) turn[s].load(by[s]);
    if (is_normed) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kSegments; ++s) sum += lanes_sum(squares(x[s], 0), 32);
      const float factor = rms_factor(sum, dim, eps);
#pragma unroll
      for (int i = 0; i < 8 * kSegments; ++i) x[i / 8].v[i % 8] = x[i / 8].v[i % 8] * factor * norm[i / 8].v[i % 8];
    }
    if (turn[0].n_pairs == 0) return;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) turn[s].show(room, x[s]);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSegments; ++s) turn[s].apply(room, by[s], x[s]);
  }
};

}  // namespace zinc::simt
