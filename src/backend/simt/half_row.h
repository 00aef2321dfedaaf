// A row's segment times a row of activations by two lanes, 16 apart: the first has groups 0 to 3, the second 4 to 7. A
// warp has 16 rows of a panel's segment. The value is quantized.h's to the bit.
#pragma once

#include "backend/simt/quantized.h"

namespace zinc::simt {

constexpr int kHalfGroups = kSegmentGroups / 2, kHalfRows = kPanelRows / 2;

ZINC_DEVICE int half_of_lane() { return lane_id() / kHalfRows; }

ZINC_DEVICE int other_half(int x) { return __shfl_xor_sync(0xFFFFFFFFu, x, kHalfRows); }
ZINC_DEVICE float other_half(float x) { return __shfl_xor_sync(0xFFFFFFFFu, x, kHalfRows); }

ZINC_DEVICE int byte_of(u32 word, int i) { return static_cast<int>(word >> 8 * i & 255u); }
ZINC_DEVICE int signed_byte_of(u32 word, int i) { return static_cast<int>(word << (24 - 8 * i)) >> 24; }

// Whether a format multiplies activations that lie as its nibbles do.
template <class F>
ZINC_BOTH auto takes_nibble_order(int) -> decltype(&F::dot_by_nibbles, true) {
  return true;
}
template <class F>
ZINC_BOTH bool takes_nibble_order(long) {
  return false;
}
// And whether all that take them rounded by groups do.
template <class... F>
ZINC_BOTH bool all_take_nibble_order(List<F...>) {
  return ((F::kRoundedBlock != kGroupElems || takes_nibble_order<F>(0)) && ...);
}

// The products of a group's first and last 16 numbers.
template <class F>
ZINC_DEVICE void dot_group(const typename F::Raw& raw, const int4* x, int& low, int& high) {
  int w[8];
  F::words(raw, w);
  low = dot_16(w, x[0]);
  high = dot_16(w + 4, x[1]);
}

// Nibbles that are not negative: the high ones stay where they are, 16 times as large.
ZINC_DEVICE int dot_nibbles(const uint4& raw, const int4* x) {
  const u32 mask = 0x0F0F0F0Fu;
  const int4 a = x[0], b = x[1];
  const int low = dot_unsigned(
      raw.w & mask, a.w,
      dot_unsigned(raw.z & mask, a.z, dot_unsigned(raw.y & mask, a.y, dot_unsigned(raw.x & mask, a.x, 0))));
  const int high = dot_unsigned(
      raw.w & ~mask, b.w,
      dot_unsigned(raw.z & ~mask, b.z, dot_unsigned(raw.y & ~mask, b.y, dot_unsigned(raw.x & ~mask, b.x, 0))));
  return low + (high >> 4);
}

enum ScaleKind : int { kWholeScales, kSixBitScales, kByteScales, kFloatScales };
template <class F>
constexpr ScaleKind kScaleKind = F::kRoundedBlock == kGroupElems ? kFloatScales
                                 : F::kHalfScales                ? kByteScales
                                 : F::kHasMin                    ? kSixBitScales
                                                                 : kWholeScales;

// What a lane multiplies its half's groups with.
template <class F, ScaleKind kind = kScaleKind<F>>
struct HalfScales {
  typename F::Header header;
  ZINC_DEVICE HalfScales(const u8* segment, int row) : header(F::header(segment, row)) {}
  ZINC_DEVICE float d() const { return header.d(); }
  ZINC_DEVICE int scaled(int k, int low, int high) const {
    return header.scale(kHalfGroups * half_of_lane() + k) * (low + high);
  }
};

// Of each group, the half's alone.
template <class F>
struct HalfScales<F, kFloatScales> {
  typename F::Header header;
  ZINC_DEVICE HalfScales(const u8* segment, int row) : header(F::half_header(segment, row, half_of_lane())) {}
};

// Four at once, a byte each (KScales).
template <class F>
struct HalfScales<F, kSixBitScales> {
  u32 scales, minima, ds;
  ZINC_DEVICE HalfScales(const u8* segment, int row) {
    const uint4 h = F::header(segment, row).bytes;
    const bool is_late = half_of_lane() != 0;
    scales = is_late ? (h.w & 0x0F0F0F0Fu) | (h.y >> 2 & 0x30303030u) : h.y & 0x3F3F3F3Fu;
    minima = is_late ? (h.w >> 4 & 0x0F0F0F0Fu) | (h.z >> 2 & 0x30303030u) : h.z & 0x3F3F3F3Fu;
    ds = h.x;
  }
  ZINC_DEVICE float d() const { return low_half(ds); }
  ZINC_DEVICE float dmin() const { return high_half(ds); }
  ZINC_DEVICE int scaled(int k, int low, int high) const { return byte_of(scales, k) * (low + high); }
  ZINC_DEVICE int mins(const int4& sums) const {
    return byte_of(minima, 0) * sums.x + byte_of(minima, 1) * sums.y + byte_of(minima, 2) * sums.z +
           byte_of(minima, 3) * sums.w;
  }
};

// A scale for each half of a group: the half's eight alone.
template <class F>
struct HalfScales<F, kByteScales> {
  uint2 scales;
  u32 ds;
  ZINC_DEVICE HalfScales(const u8* segment, int row)
      : scales(load_8(piece(segment, 0, 16, row) + 8 * half_of_lane())), ds(load_4(piece(segment, 16, 4, row))) {}
  ZINC_DEVICE float d() const { return low_half(ds); }
  ZINC_DEVICE int scaled(int k, int low, int high) const {
    const u32 word = k < 2 ? scales.x : scales.y;
    return signed_byte_of(word, k % 2 * 2) * low + signed_byte_of(word, k % 2 * 2 + 1) * high;
  }
};

// A lane's groups of a row's segment, in registers: where they lay may then be overwritten.
template <class F>
struct HalfRow {
  static constexpr ScaleKind kKind = kScaleKind<F>;
  typename F::Raw raw[kHalfGroups];
  HalfScales<F> scales;

  ZINC_DEVICE HalfRow(const u8* segment, int row) : scales(segment, row) {
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) raw[k] = F::group(segment, row, kHalfGroups * half_of_lane() + k);
  }

  // The segment's value, in the lanes of the second half.
  ZINC_DEVICE float times(const SharedX& x, int n_groups) const {
    if constexpr (kKind == kFloatScales) {
      return times_groups(x, n_groups);
    } else {
      return times_segment(x);
    }
  }

 private:
  ZINC_DEVICE float times_groups(const SharedX& x, int n_groups) const {
    const int half = half_of_lane(), first = kHalfGroups * half;
    int dots[kHalfGroups];
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) {
      if constexpr (all_take_nibble_order(Formats{})) {
        dots[k] = F::dot_by_nibbles(raw[k], x.quants + 2 * (first + k));
      } else {
        int low, high;
        dot_group<F>(raw[k], x.quants + 2 * (first + k), low, high);
        dots[k] = low + high;
      }
    }
    const float4 all = reinterpret_cast<const float4*>(x.scales)[half];
    const float xscales[kHalfGroups] = {all.x, all.y, all.z, all.w};
    float value = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // the second half goes on from the first's
      if (h == 1) value = other_half(value);
#pragma unroll
      for (int k = 0; k < kHalfGroups; ++k) {
        const int xsum = F::kHasMin ? x.sums[first + k] : 0;
        const float next = add_group<F>(scales.header, k, dots[k], xscales[k], xsum, value);
        value = first + k < n_groups ? next : value;
      }
    }
    return value;
  }
  ZINC_DEVICE float times_segment(const SharedX& x) const {
    const int half = half_of_lane(), first = kHalfGroups * half;
    int sums = 0;
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) {
      // x's last groups are loaded behind the first ones' products: beside a normed row's state registers are few.
      if (is_normed(kShape.input) && k == kHalfGroups / 2) __syncwarp();
      int low, high = 0;
      if constexpr (kKind == kSixBitScales && F::kGroupBytes == 16) {
        low = dot_nibbles(raw[k], x.quants + 2 * (first + k));
      } else {
        dot_group<F>(raw[k], x.quants + 2 * (first + k), low, high);
      }
      sums += scales.scaled(k, low, high);
    }
    sums += other_half(sums);
    float value = scales.d() * static_cast<float>(sums);
    if constexpr (F::kHasMin) {
      int mins = scales.mins(reinterpret_cast<const int4*>(x.sums)[half]);
      mins += other_half(mins);
      value = fmaf(-scales.dmin(), static_cast<float>(mins), value);
    }
    return value * x.scales[0];
  }
};

}  // namespace zinc::simt
