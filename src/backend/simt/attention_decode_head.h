// Norm and RoPE of a head in decode, by a warp: bit-identical to prepare_head() (attention_heads.h), with everything
// computed before the wait that does not depend on it.
#pragma once

#include "backend/simt/attention_decode_smem.h"

namespace zinc::simt {

// Eight elements, zero past n. Bypasses L1, which may hold data from before the wait.
ZINC_DEVICE Vec8 load_uncached(const float* from, int n) {
  if (n >= 8) {
    const float4 a = __ldcg(reinterpret_cast<const float4*>(from));
    const float4 b = __ldcg(reinterpret_cast<const float4*>(from + 4));
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  Vec8 out = {{0, 0, 0, 0, 0, 0, 0, 0}};
  if constexpr (kKeyDim % 8 != 0 || kValueDim % 8 != 0) {
    for (int i = 0; i < 8; ++i) out.v[i] = i < n ? __ldcg(from + i) : 0.0f;
  }
  return out;
}

// As f16.
ZINC_DEVICE uint4 to_f16(const Vec8& x) {
  return make_uint4(pack_f16x2(x.v[0], x.v[1]), pack_f16x2(x.v[2], x.v[3]), pack_f16x2(x.v[4], x.v[5]),
                    pack_f16x2(x.v[6], x.v[7]));
}

// RoPE of a lane's eight neighboring elements. First of a pair: a cos - b sin; second: a sin + b cos.
struct LaneRope {
  int first, n_pairs;   // first: index in the head of the first element
  const float2* table;  // first entry: that element's pair
  int own, other;       // shared memory offsets of the eight, and of their partners

  ZINC_DEVICE void init(const HeadInput& part, int init_first, int row) {
    first = init_first;
    n_pairs = part.n_pairs;
    const bool is_low = first < n_pairs;
    const int pair = kShape.rope_layout == kRopeAdjacent ? first / 2 : is_low ? first : first - n_pairs;
    table = reinterpret_cast<const float2*>(part.table) + (is_rotated() ? pair : 0);
    own = row + first * 4;
    other = own + (is_low ? n_pairs : -n_pairs) * 4;
    keep_in_register(n_pairs);
    keep_in_register(table);
    keep_in_register(own);
    keep_in_register(other);
  }
  ZINC_DEVICE bool is_rotated() const { return first < 2 * n_pairs; }
  ZINC_DEVICE bool is_rotated(int i) const { return kShape.rope_layout == kRopeHalvesVec8 || first + i < 2 * n_pairs; }
  ZINC_DEVICE bool is_first(int i) const {
    if (kShape.rope_layout == kRopeAdjacent) return i % 2 == 0;
    return kShape.rope_layout == kRopeHalvesVec8 ? first < n_pairs : first + i < n_pairs;
  }

  ZINC_DEVICE void load(float2 (&cos_sin)[8]) const {
    if (!is_rotated()) return;
    if (kShape.rope_layout == kRopeHalvesRagged || (kShape.rope_layout == kRopeAdjacent && !is_rotated(7))) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int step = kShape.rope_layout == kRopeAdjacent ? i / 2
                         : first < n_pairs && !is_first(i)   ? i - n_pairs
                                                             : i;
        if (is_rotated(i)) cos_sin[i] = __ldcg(table + step);
      }
      return;
    }
    constexpr int kElemsPerPair = kShape.rope_layout == kRopeAdjacent ? 2 : 1;  // elements of the eight per pair
#pragma unroll
    for (int i = 0; i < 8; i += 2 * kElemsPerPair) {
      const float4 pairs = __ldcg(reinterpret_cast<const float4*>(table) + i / (2 * kElemsPerPair));
#pragma unroll
      for (int k = 0; k < 2 * kElemsPerPair; ++k) {
        cos_sin[i + k] = k < kElemsPerPair ? make_float2(pairs.x, pairs.y) : make_float2(pairs.z, pairs.w);
      }
    }
  }
  ZINC_DEVICE void share(DecodeSmem& smem, const Vec8& x) const {
    if (kShape.rope_layout == kRopeAdjacent || first >= kHeadRow) return;
    smem_at<float4>(smem, own) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    smem_at<float4>(smem, own + 16) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  }
  // REQUIRES: all lanes called share().
  ZINC_DEVICE void apply(DecodeSmem& smem, const float2 (&cos_sin)[8], Vec8& x) const {
    if (!is_rotated()) return;
    Vec8 partner;
    if constexpr (kShape.rope_layout == kRopeHalvesVec8) {
      const float4 a = smem_at<float4>(smem, other), b = smem_at<float4>(smem, other + 16);
      partner = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int partner_distance = is_first(i) ? n_pairs : -n_pairs;
        partner.v[i] = kShape.rope_layout == kRopeAdjacent ? x.v[i ^ 1]
                       : is_rotated(i)                     ? smem_at<float>(smem, own + (i + partner_distance) * 4)
                                                           : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float rotated = fmaf(is_first(i) ? -1.0f : 1.0f, partner.v[i] * cos_sin[i].y, x.v[i] * cos_sin[i].x);
      if (is_rotated(i)) x.v[i] = rotated;
    }
  }
};

// A warp's head: eight neighboring elements per lane and segment.
struct DecodeHead {
  const float* from[kSegments];
  int dim, is_normed;
  float eps;
  Vec8 norm[kSegments];  // weights
  LaneRope rope[kSegments];

  // Loads weights, and prefetches the RoPE table. row: the head's offset in shared memory.
  ZINC_DEVICE DecodeHead(const HeadInput& part, int head, int row)
      : dim(kKeyDim == kValueDim ? kKeyDim : part.dim), is_normed(part.is_normed), eps(part.eps) {
    keep_in_register(is_normed);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      from[s] = part.x + head * part.stride + first_dim(s);
      keep_in_register(from[s]);
      norm[s] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (is_normed && part.norm_weight) norm[s] = load_uncached(part.norm_weight + first_dim(s), dim - first_dim(s));
      rope[s].init(part, first_dim(s), row);
    }
    constexpr int kLinePairs = 16;
    if (lane_id() * kLinePairs < part.n_pairs) prefetch_l2(part.table + lane_id() * 2 * kLinePairs);
  }
  static ZINC_DEVICE int first_dim(int s) { return s * kSegmentElems + lane_id() * 8; }

  ZINC_DEVICE void compute(DecodeSmem& smem, Vec8 (&x)[kSegments]) const {
    float2 cos_sin[kSegments][8];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) x[s] = load_uncached(from[s], dim - first_dim(s));
#pragma unroll
    for (int s = 0; s < kSegments; ++s) rope[s].load(cos_sin[s]);
    if (is_normed) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kSegments; ++s) sum += warp_sum(sum_squares(x[s], 0), 32);
      const float factor = rms_factor(sum, dim, eps);
#pragma unroll
      for (int i = 0; i < 8 * kSegments; ++i) x[i / 8].v[i % 8] = x[i / 8].v[i % 8] * factor * norm[i / 8].v[i % 8];
    }
    if (rope[0].n_pairs == 0) return;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) rope[s].share(smem, x[s]);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSegments; ++s) rope[s].apply(smem, cos_sin[s], x[s]);
  }
};

}  // namespace zinc::simt
