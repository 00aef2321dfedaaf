// Dot products of a weight row's K segment with the activation columns, by two lanes 16 apart: the first has groups 0
// to 3, the second 4 to 7. A warp has 16 rows of a panel. Bit-identical to quantized_weights.h.
#pragma once

#include "backend/simt/float_weights.h"
#include "backend/simt/mma_segment.h"

namespace zinc::simt {

constexpr int kHalfGroups = kSegmentGroups / 2, kHalfRows = kPanelRows / 2;

ZINC_DEVICE int lane_half() { return lane_id() / kHalfRows; }

ZINC_DEVICE int from_other_half(int x) { return __shfl_xor_sync(0xFFFFFFFFu, x, kHalfRows); }
ZINC_DEVICE float from_other_half(float x) { return __shfl_xor_sync(0xFFFFFFFFu, x, kHalfRows); }

ZINC_DEVICE int byte_of(u32 word, int i) { return static_cast<int>(word >> 8 * i & 255u); }
ZINC_DEVICE int signed_byte_of(u32 word, int i) { return static_cast<int>(word << (24 - 8 * i)) >> 24; }

// Whether a format can multiply activations stored in the order of its nibbles.
template <class F>
ZINC_HOST_DEVICE auto has_nibble_dot(int) -> decltype(&F::dot_nibble_order, true) {
  return true;
}
template <class F>
ZINC_HOST_DEVICE bool has_nibble_dot(long) {
  return false;
}
// Whether all formats with q8 blocks of 32 can.
template <class... F>
ZINC_HOST_DEVICE bool all_have_nibble_dot(List<F...>) {
  return ((F::kQ8Block != kGroupElems || has_nibble_dot<F>(0)) && ...);
}

// The weights of a group, unpacked once for all columns.
template <class F>
struct GroupWords {
  int w[8];
  ZINC_DEVICE explicit GroupWords(const typename F::Raw& raw) { F::words(raw, w); }
  // Dot products of the first and last 16 elements.
  ZINC_DEVICE void dot(const int4* x, int& low, int& high) const {
    low = dot_16(w, x[0]);
    high = dot_16(w + 4, x[1]);
  }
};

// Unsigned nibbles: the high ones are not shifted down but counted 16 times, and the sum is divided.
ZINC_DEVICE int dot_nibbles(const uint4& raw, const int4* x) {
  const u32 mask = 0x0F0F0F0Fu;
  const int4 a = x[0], b = x[1];
  const int low = dp4a_u8s8(
      raw.w & mask, a.w, dp4a_u8s8(raw.z & mask, a.z, dp4a_u8s8(raw.y & mask, a.y, dp4a_u8s8(raw.x & mask, a.x, 0))));
  const int high =
      dp4a_u8s8(raw.w & ~mask, b.w,
                dp4a_u8s8(raw.z & ~mask, b.z, dp4a_u8s8(raw.y & ~mask, b.y, dp4a_u8s8(raw.x & ~mask, b.x, 0))));
  return low + (high >> 4);
}

// Between two columns: the activations of at most two are in flight, to save registers.
template <int n>
ZINC_DEVICE void limit_columns_in_flight(int c) {
  if (n > 1 && c % 2 == 1) __syncwarp();
}

enum ScaleKind : int { kIntScales, kSixBitScales, kByteScales, kFloatScales };
template <class F>
constexpr ScaleKind kScaleKind = F::kQ8Block == kGroupElems ? kFloatScales
                                 : F::kHalfScales           ? kByteScales
                                 : F::kHasMin               ? kSixBitScales
                                                            : kIntScales;

// The scales of a lane's four groups.
template <class F, ScaleKind kind = kScaleKind<F>>
struct HalfScales {
  typename F::Header header;
  ZINC_DEVICE HalfScales(const u8* segment, int row) : header(F::header(segment, row)) {}
  ZINC_DEVICE float d() const { return header.d(); }
  ZINC_DEVICE int scaled(int k, int low, int high) const {
    return header.scale(kHalfGroups * lane_half() + k) * (low + high);
  }
};

// Float scales: only those of the lane's half.
template <class F>
struct HalfScales<F, kFloatScales> {
  typename F::Header header;
  ZINC_DEVICE HalfScales(const u8* segment, int row) : header(F::half_header(segment, row, lane_half())) {}
};

// 6-bit scales: four at once, a byte each (KScales).
template <class F>
struct HalfScales<F, kSixBitScales> {
  u32 scales, minima, ds;
  ZINC_DEVICE HalfScales(const u8* segment, int row) {
    const uint4 h = F::header(segment, row).bytes;
    const bool is_upper = lane_half() != 0;
    scales = is_upper ? (h.w & 0x0F0F0F0Fu) | (h.y >> 2 & 0x30303030u) : h.y & 0x3F3F3F3Fu;
    minima = is_upper ? (h.w >> 4 & 0x0F0F0F0Fu) | (h.z >> 2 & 0x30303030u) : h.z & 0x3F3F3F3Fu;
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

// A byte scale per half group: the eight of the lane's half.
template <class F>
struct HalfScales<F, kByteScales> {
  uint2 scales;
  u32 ds;
  ZINC_DEVICE HalfScales(const u8* segment, int row)
      : scales(load_8(piece(segment, 0, 16, row) + 8 * lane_half())), ds(load_4(piece(segment, 16, 4, row))) {}
  ZINC_DEVICE float d() const { return low_half(ds); }
  ZINC_DEVICE int scaled(int k, int low, int high) const {
    const u32 word = k < 2 ? scales.x : scales.y;
    return signed_byte_of(word, k % 2 * 2) * low + signed_byte_of(word, k % 2 * 2 + 1) * high;
  }
};

// A lane's half of a row's segment, in registers: its shared memory may then be overwritten.
template <class F>
struct HalfSegment {
  static constexpr ScaleKind kKind = kScaleKind<F>;
  typename F::Raw raw[kHalfGroups];
  HalfScales<F> scales;

  ZINC_DEVICE HalfSegment(const u8* segment, int row) : scales(segment, row) {
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) raw[k] = F::group(segment, row, kHalfGroups * lane_half() + k);
  }

  // The dot products of the segment with n columns, in the lanes of the second half.
  template <int n>
  ZINC_DEVICE void dot(const Q8Segment* x, int n_groups, float (&values)[n]) const {
    if constexpr (kKind == kFloatScales) {
      dot_float_scales(x, n_groups, values);
    } else {
      dot_int_scales(x, values);
    }
  }

 private:
  template <int n>
  ZINC_DEVICE void dot_float_scales(const Q8Segment* x, int n_groups, float (&values)[n]) const {
    const int half = lane_half(), first = kHalfGroups * half;
    int dots[n][kHalfGroups];
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) {
      if constexpr (all_have_nibble_dot(Formats{})) {
#pragma unroll
        for (int c = 0; c < n; ++c) {
          dots[c][k] = F::dot_nibble_order(raw[k], x[c].quants + 2 * (first + k));
          limit_columns_in_flight<n>(c);
        }
      } else {
        const GroupWords<F> words(raw[k]);
#pragma unroll
        for (int c = 0; c < n; ++c) {
          int low, high;
          words.dot(x[c].quants + 2 * (first + k), low, high);
          dots[c][k] = low + high;
          limit_columns_in_flight<n>(c);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < n; ++c) {
      const float4 all = reinterpret_cast<const float4*>(x[c].scales)[half];
      const float xscales[kHalfGroups] = {all.x, all.y, all.z, all.w};
      float value = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {  // the second half continues the first's sum
        if (h == 1) value = from_other_half(value);
#pragma unroll
        for (int k = 0; k < kHalfGroups; ++k) {
          const int xsum = F::kHasMin ? x[c].sums[first + k] : 0;
          const float next = add_group<F>(scales.header, k, dots[c][k], xscales[k], xsum, value);
          value = first + k < n_groups ? next : value;
        }
      }
      values[c] = value;
    }
  }
  template <int n>
  ZINC_DEVICE void dot_int_scales(const Q8Segment* x, float (&values)[n]) const {
    const int half = lane_half(), first = kHalfGroups * half;
    int sums[n] = {};
#pragma unroll
    for (int k = 0; k < kHalfGroups; ++k) {
      // Load x's last groups after the first products: a normed row's state leaves few registers.
      if (kShape.is_normed && k == kHalfGroups / 2) __syncwarp();
      if constexpr (kKind == kSixBitScales && F::kGroupBytes == 16) {
#pragma unroll
        for (int c = 0; c < n; ++c) {
          sums[c] += scales.scaled(k, dot_nibbles(raw[k], x[c].quants + 2 * (first + k)), 0);
          limit_columns_in_flight<n>(c);
        }
      } else {
        const GroupWords<F> words(raw[k]);
#pragma unroll
        for (int c = 0; c < n; ++c) {
          int low, high;
          words.dot(x[c].quants + 2 * (first + k), low, high);
          sums[c] += scales.scaled(k, low, high);
          limit_columns_in_flight<n>(c);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < n; ++c) {
      sums[c] += from_other_half(sums[c]);
      float value = scales.d() * static_cast<float>(sums[c]);
      if constexpr (F::kHasMin) {
        int mins = scales.mins(reinterpret_cast<const int4*>(x[c].sums)[half]);
        mins += from_other_half(mins);
        value = fmaf(-scales.dmin(), static_cast<float>(mins), value);
      }
      values[c] = value * x[c].scales[0];
      limit_columns_in_flight<n>(c);
    }
  }
};

// ---- many columns ----

// A quantized segment of n columns, in shared memory: as MmaColumns reads it, the words of two groups of a lane
// together.
template <int n>
struct Q8ColumnSegment {
  uint4 quants[kSegmentGroups / 2 * n * 4];
  float scales[n * kSegmentGroups];
  int sums[n * kSegmentGroups];

  // Words 2 i and 2 i + 1 of a column.
  ZINC_DEVICE void set_words(int column, int i, const int2& words) {
    const int group = i / 4, word = i % 4 * 2;
    int* to = reinterpret_cast<int*>(quants) + ((group / 2 * n + column) * 4 + word % 4) * 4 + group % 2 * 2 + word / 4;
    to[0] = words.x;
    to[4] = words.y;
  }
  ZINC_DEVICE void set_group(int column, int group, float scale, int sum) {
    scales[column * kSegmentGroups + group] = scale;
    sums[column * kSegmentGroups + group] = sum;
  }
};
static_assert(sizeof(Q8ColumnSegment<3>) == 3 * input_segment_bytes(false));

// Columns past the last repeat it.
template <class F, int n>
struct SharedColumns : MmaColumns<F, 1> {
  ZINC_DEVICE explicit SharedColumns(const Q8ColumnSegment<n>& x) {
    const int column = min(lane_id() / 4, n - 1), i = lane_id() % 4;
#pragma unroll
    for (int k = 0; k < kSegmentGroups / 2; ++k) this->words[0][k] = x.quants[(k * n + column) * 4 + i];
    const int first = column * kSegmentGroups;
    if constexpr (MmaColumns<F, 1>::kHasGroupScales) {
      this->xscales[0] = reinterpret_cast<const float2*>(x.scales + first)[i];
    } else {
      this->xscales[0].x = x.scales[first];
    }
    if constexpr (F::kHasMin) this->xsums[0] = reinterpret_cast<const int2*>(x.sums + first)[i];
  }
};

// A segment of float weights times n columns, `stride` floats apart; accumulated in order as in float_weights.h.
template <class F, int n>
ZINC_DEVICE void dot_float_segment(const u8* segment, int row, const float* x, int stride, int n_groups,
                                   float (&sums)[n]) {
  constexpr int kPieces = kGroupElems / F::kPieceElems;
#pragma unroll
  for (int c = 0; c < n; ++c) sums[c] = 0;
  const auto add = [&](const uint4& piece, int first, int e) {  // elements e .. e + 3 of a piece
#pragma unroll
    for (int c = 0; c < n; ++c) {
      const float4 v = *reinterpret_cast<const float4*>(x + c * stride + first + e);
      const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[c] = fmaf(F::element(piece, e + k), values[k], sums[c]);
    }
  };
  if constexpr (n == 1) {
#pragma unroll(F::kPieceElems >= 8 ? 2 : 1)
    for (int g = 0; g < n_groups; ++g) {
      uint4 pieces[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) pieces[j] = float_piece<F>(segment, row, g, j);
#pragma unroll
      for (int e = 0; e < kGroupElems; e += 4) {
        if (F::kPieceElems < 8 && e == kGroupElems / 2) __syncwarp();  // at most half a group of loads in flight
        add(pieces[e / F::kPieceElems], g * kGroupElems + e / F::kPieceElems * F::kPieceElems, e % F::kPieceElems);
      }
    }
  } else {  // the columns' sums leave few registers
#pragma unroll 2
    for (int i = 0; i < n_groups * kPieces; ++i) {
      const uint4 piece = float_piece<F>(segment, row, i / kPieces, i % kPieces);
#pragma unroll
      for (int e = 0; e < F::kPieceElems; e += 4) add(piece, i * F::kPieceElems, e);
    }
  }
}

}  // namespace zinc::simt
