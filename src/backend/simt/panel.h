// How a matrix lies on the device. 32 rows form a panel; their inputs are cut into segments of 256 and these into
// groups of 32. A segment is, for its 32 rows together: the headers (scales), then its groups; both in pieces of 4, 8
// or 16 bytes a row, the rows' pieces side by side. So a warp with one lane per row loads whole lines, and so does one
// that feeds matrix cores: word i of a piece holds the elements that lane i of a quad needs. A format file defines
// WeightFormat: sizes, pack() from the file's blocks, header(), and the group's numbers as words of four signed bytes
// (words() for a row's owner, fragment() for a lane of a quad).
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

// The row's piece of `width` bytes that begins `begin` bytes into its part of the segment.
ZINC_DEVICE const u8* piece(const u8* segment, int begin, int width, int row) {
  return segment + kPanelRows * begin + row * width;
}
ZINC_DEVICE u8* piece(u8* segment, int begin, int width, int row) { return segment + kPanelRows * begin + row * width; }

// From global or shared memory.
ZINC_DEVICE uint4 load_16(const u8* at) { return *reinterpret_cast<const uint4*>(at); }
ZINC_DEVICE uint2 load_8(const u8* at) { return *reinterpret_cast<const uint2*>(at); }
ZINC_DEVICE u32 load_4(const u8* at) { return *reinterpret_cast<const u32*>(at); }

ZINC_DEVICE u16 read_u16(const u8* at) { return static_cast<u16>(at[0] | at[1] << 8); }

// One group's 16 bytes of nibbles: byte j holds element j in its low half, element j + 16 in its high one.
template <class Nibble>
ZINC_DEVICE void pack_nibbles(u8* to, const Nibble& nibble) {
  for (int j = 0; j < 16; ++j) to[j] = static_cast<u8>(nibble(j) | nibble(j + 16) << 4);
}

ZINC_DEVICE u32 component(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Subtracts `offset` from each byte. REQUIRES: bytes below 128.
template <u32 offset>
ZINC_DEVICE int minus(u32 bytes) {
  return static_cast<int>(((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u);
}

// Bits 0..3 of `bits`, each in bit 4 of its own byte.
ZINC_DEVICE u32 spread_fifth(u32 bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }

template <class... T>
struct List {};

// A row's bytes of one segment on their way from memory, and what products read: floating.h and quantized.h have one
// each.
template <class F, bool is_float = F::kRoundedBlock == 0>
struct LoadedSegment;
template <class F, int M, bool is_float = F::kRoundedBlock == 0>
struct Inputs;
template <int M>
struct Work;  // of linear.cu

template <class F>
ZINC_DEVICE void pack_floats(const u8* from, int n_elems, u8* segment, int row);
template <class F>
ZINC_DEVICE void decode_floats(const u8* segment, int row, int g, float (&out)[kGroupElems]);
template <class F>
ZINC_DEVICE void decode_quants(const u8* segment, int row, int g, float (&out)[kGroupElems]);

template <class F>
ZINC_DEVICE void pack_segment(const u8* from, int n_elems, u8* segment, int row) {
  if constexpr (F::kRoundedBlock == 0) {
    pack_floats<F>(from, n_elems, segment, row);
  } else {
    F::pack(from, n_elems, segment, row);
  }
}

// The group's 32 numbers as floats.
template <class F>
ZINC_DEVICE void decode_group(const u8* segment, int row, int g, float (&out)[kGroupElems]) {
  if constexpr (F::kRoundedBlock == 0) {
    decode_floats<F>(segment, row, g, out);
  } else {
    decode_quants<F>(segment, row, g, out);
  }
}

}  // namespace zinc::simt
