// Weight layout on the device. 32 rows form a panel; K is cut into segments of 256 inputs and these into quant groups
// of 32 inputs. A segment holds, for its 32 rows, the headers (scales) and then the groups, both in pieces of 4, 8 or
// 16 bytes per row, the pieces of all rows next to each other. So accesses coalesce with one lane per row, and also in
// the fragment layout of mma: word i of a piece holds the elements of lane i of a quad. A format file defines
// WeightFormat: sizes, pack() from the file's quant blocks, header(), and the group's weights as words of four int8
// (words() for one lane per row). fragment(segment, row, g, i, low, high) gives lane i of a quad its operand of
// mma.m16n8k32 for group g: low holds the weights at k = 4 i .. 4 i + 3, high those at k = 16 + 4 i .. 19 + 4 i.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

// The row's piece of `width` bytes at byte `begin` of its part of the segment.
ZINC_DEVICE const u8* piece(const u8* segment, int begin, int width, int row) {
  return segment + kPanelRows * begin + row * width;
}
ZINC_DEVICE u8* piece(u8* segment, int begin, int width, int row) { return segment + kPanelRows * begin + row * width; }

// From global or shared memory.
ZINC_DEVICE uint4 load_16(const u8* ptr) { return *reinterpret_cast<const uint4*>(ptr); }
ZINC_DEVICE uint2 load_8(const u8* ptr) { return *reinterpret_cast<const uint2*>(ptr); }
ZINC_DEVICE u32 load_4(const u8* ptr) { return *reinterpret_cast<const u32*>(ptr); }

ZINC_DEVICE u16 read_u16(const u8* ptr) { return static_cast<u16>(ptr[0] | ptr[1] << 8); }

// One group's 16 bytes of nibbles: byte j holds element j in its low half, element j + 16 in its high one.
template <class Nibble>
ZINC_DEVICE void pack_nibbles(u8* to, const Nibble& nibble) {
  for (int j = 0; j < 16; ++j) to[j] = static_cast<u8>(nibble(j) | nibble(j + 16) << 4);
}

ZINC_DEVICE u32 component(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Subtracts `offset` from each byte. REQUIRES: bytes below 128.
template <u32 offset>
ZINC_DEVICE int subtract_bytes(u32 bytes) {
  return static_cast<int>(((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u);
}

// Bits 0..3 of `bits`, each in bit 4 of its own byte.
ZINC_DEVICE u32 expand_fifth_bits(u32 bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }

template <class... T>
struct List {};
template <class A, class B>
inline constexpr bool kIsSame = false;
template <class A>
inline constexpr bool kIsSame<A, A> = true;

// A row's segment in registers, and the activations of linear.cu: specialized in float_weights.h and
// quantized_weights.h.
template <class F, bool is_float = F::kQ8Block == 0>
struct LoadedSegment;
template <class F, int M, bool is_float = F::kQ8Block == 0>
struct Inputs;
template <int M>
struct BlockRows;  // in linear.cu

template <class F>
ZINC_DEVICE void pack_floats(const u8* from, int n_elems, u8* segment, int row);
template <class F>
ZINC_DEVICE void decode_floats(const u8* segment, int row, int g, float (&out)[kGroupElems]);
template <class F>
ZINC_DEVICE void decode_quants(const u8* segment, int row, int g, float (&out)[kGroupElems]);

template <class F>
ZINC_DEVICE void pack_segment(const u8* from, int n_elems, u8* segment, int row) {
  if constexpr (F::kQ8Block == 0) {
    pack_floats<F>(from, n_elems, segment, row);
  } else {
    F::pack(from, n_elems, segment, row);
  }
}

// Dequantizes a group.
template <class F>
ZINC_DEVICE void decode_group(const u8* segment, int row, int g, float (&out)[kGroupElems]) {
  if constexpr (F::kQ8Block == 0) {
    decode_floats<F>(segment, row, g, out);
  } else {
    decode_quants<F>(segment, row, g, out);
  }
}

}  // namespace zinc::simt
