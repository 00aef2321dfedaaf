// Dot products of 16 weight rows with columns of activations over a K segment, with int8 warp MMA: the same values as
// quantized_weights.h. A lane has rows `row` and `row` + 8 and, of each eight columns, two (the layout of mma's D).
#pragma once

#include "backend/simt/quantized_weights.h"

namespace zinc::simt {

// The integer scales of a row's groups.
template <class F, bool has_six_bits = F::kHasMin&& F::kQ8Block == kSegmentElems>
struct GroupScales {
  const typename F::Header& header;
  ZINC_DEVICE explicit GroupScales(const typename F::Header& h) : header(h) {}
  ZINC_DEVICE int operator[](int g) const { return header.scale(g); }
};
// 6-bit ones (KScales): a byte each.
template <class F>
struct GroupScales<F, true> {
  u32 four[2];
  ZINC_DEVICE explicit GroupScales(const typename F::Header& h) : four{h.four_scales(0), h.four_scales(1)} {}
  ZINC_DEVICE int operator[](int g) const { return static_cast<int>(four[g / 4] >> 8 * (g % 4) & 255u); }
};

// Columns of activations over a K segment, eight per tile, in registers: B fragments of mma, with scales and sums of
// each column's groups 2 i and 2 i + 1 in lane i of its quad, or of the whole segment. As mma_segment() reads them.
template <class F, int kTiles>
struct MmaColumns {
  static constexpr bool kHasGroupScales = F::kQ8Block == kGroupElems;
  uint4 words[kTiles][kSegmentGroups / 2];
  float2 xscales[kTiles];
  int2 xsums[kTiles];

  ZINC_DEVICE void fragment(int c, int g, int (&b)[2]) const {
    const uint4& w = words[c][g / 2];
    b[0] = static_cast<int>(g % 2 == 0 ? w.x : w.z);
    b[1] = static_cast<int>(g % 2 == 0 ? w.y : w.w);
  }
  ZINC_DEVICE float2 scales(int c, int g) const {
    const float own = kHasGroupScales && g % 2 != 0 ? xscales[c].y : xscales[c].x;
    return make_float2(of_column(own, 0, g), of_column(own, 1, g));
  }
  ZINC_DEVICE int2 sums(int c, int g) const {
    const int own = g % 2 != 0 ? xsums[c].y : xsums[c].x;
    return make_int2(of_column(own, 0, g), of_column(own, 1, g));
  }
  // With f16 MMA: minima and both parts of a sum (64 * high + low) are exact, and so is the result in float.
  template <class G>
  ZINC_DEVICE void mins(const typename G::Header (&headers)[2], int c, float (&d)[4]) const {
    const int i = lane_id() % 4, low[2] = {xsums[c].x & 63, xsums[c].y & 63};
    const u32 b[2] = {halves(low[0], low[1]), halves(xsums[c].x - low[0], xsums[c].y - low[1])};
    const u32 a[2] = {headers[0].two_mins(i), headers[1].two_mins(i)};
    mma_m16n8k16_f16(d, a[0], a[1], a[0], a[1], b[0], b[1]);
  }

 private:
  static ZINC_DEVICE u32 halves(int a, int b) {
    return float_to_half(static_cast<float>(a)) | static_cast<u32>(float_to_half(static_cast<float>(b))) << 16;
  }
  // From the lane that has group g of the lane's first or second column.
  template <class T>
  static ZINC_DEVICE T of_column(T own, int second, int g) {
    return __shfl_sync(0xFFFFFFFFu, own, (lane_id() % 4 * 2 + second) * 4 + (kHasGroupScales ? g / 2 : 0));
  }
};

// values[c][e] is the segment's value of row + e / 2 * 8 and column 8 c + lane % 4 * 2 + e % 2. `x` are the
// activations: fragment(c, g, b) is B of eight columns and a quant group; scales(c, g) and sums(c, g) are those of the
// lane's two columns; mins<F>(headers, c, d) is the sum of min * sum over the groups, in the layout of D.
template <class F, int kTiles, class X>
ZINC_DEVICE void mma_segment(const u8* segment, int row, const X& x, int n_groups, float (&values)[kTiles][4]) {
  const int lane_in_quad = lane_id() % 4;
  const typename F::Header headers[2] = {F::header(segment, row), F::header(segment, row + 8)};
  const GroupScales<F> scales[2] = {GroupScales<F>(headers[0]), GroupScales<F>(headers[1])};
  int sums[kTiles][4] = {};
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) values[c][e] = 0;
  }
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    if (g >= n_groups) break;
    int a[4];
    F::fragment(segment, row, g, lane_in_quad, a[0], a[2]);
    F::fragment(segment, row + 8, g, lane_in_quad, a[1], a[3]);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      int b[2];
      x.fragment(c, g, b);
      if constexpr (F::kHalfScales) {
        int low[4] = {}, high[4] = {};
        mma_m16n8k16_s8(low, a[0], a[1], b[0]);
        mma_m16n8k16_s8(high, a[2], a[3], b[1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sums[c][e] += scales[e / 2][2 * g] * low[e] + scales[e / 2][2 * g + 1] * high[e];
        }
      } else {
        int dot[4] = {};
        mma_m16n8k32_s8(dot, a, b);
        if constexpr (F::kQ8Block == kGroupElems) {
          const float2 xscales = x.scales(c, g);
          int2 xsums = {0, 0};
          if constexpr (F::kHasMin) xsums = x.sums(c, g);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            values[c][e] = add_group<F>(headers[e / 2], g, dot[e], e % 2 == 0 ? xscales.x : xscales.y,
                                        e % 2 == 0 ? xsums.x : xsums.y, values[c][e]);
          }
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[c][e] += scales[e / 2][g] * dot[e];
        }
      }
    }
  }
  if constexpr (F::kQ8Block == kSegmentElems) {
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      float mins[4] = {};
      if constexpr (F::kHasMin) x.template mins<F>(headers, c, mins);
      const float2 xscales = x.scales(c, 0);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        values[c][e] = segment_value<F>(headers[e / 2], sums[c][e], mins[e], e % 2 == 0 ? xscales.x : xscales.y);
      }
    }
  }
}

}  // namespace zinc::simt
