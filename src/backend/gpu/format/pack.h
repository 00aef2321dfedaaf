// Steps of packing a panel, which several formats share.
#pragma once

#include <cstring>

#include "backend/gpu/panel_format.h"

namespace zinc::gpu {

inline uint8_t byte_at(const std::byte* from, int i) { return static_cast<uint8_t>(from[i]); }

// Address of a row's piece of `width` bytes at offset `begin` of its part of the segment.
inline std::byte* piece(std::byte* segment, int begin, int width, int row) {
  return segment + kPanelRows * begin + row * width;
}

// One quant group's 16 bytes of nibbles: byte j has element j in its low nibble, element j + 16 in its high nibble.
template <class Nibble>
void pack_nibbles(std::byte* to, const Nibble& nibble) {
  for (int j = 0; j < 16; ++j) to[j] = static_cast<std::byte>(nibble(j) | nibble(j + 16) << 4);
}

// A quant block of 32 that is also a quant group: scales go to the header, fifth bits and quants to the group.
struct BlockLayout {
  int block_bytes, header_bytes, group_bytes;
  int n_halves = 1;     // f16 values: scale, or scale and minimum
  int fifth_bits = -1;  // offset of the fifth bits; -1: none
  int quants = 2, n_quant_bytes = 16;
};

template <const BlockLayout& layout>
void pack_blocks(const std::byte* from, int n_elems, std::byte* segment, int row) {
  constexpr BlockLayout b = layout;
  for (int g = 0; g < n_elems / kGroupElems; ++g, from += b.block_bytes) {
    for (int h = 0; h < b.n_halves; ++h) std::memcpy(piece(segment, 16 * h, 16, row) + 2 * g, from + 2 * h, 2);
    const int begin = b.header_bytes + g * b.group_bytes;
    for (int n = 0; n < b.n_quant_bytes; n += 16) {
      std::memcpy(piece(segment, begin + n, 16, row), from + b.quants + n, 16);
    }
    if (b.fifth_bits >= 0) std::memcpy(piece(segment, begin + 16, 4, row), from + b.fifth_bits, 4);
  }
}

// The record of a format of such blocks. The quants are multiplied with activations that have a scale per 32.
template <const BlockLayout& layout>
constexpr PanelFormat block_panel(std::string_view name) {
  return {.name = name,
          .header_bytes = layout.header_bytes,
          .group_bytes = layout.group_bytes,
          .q8_block = kGroupElems,
          .block_elems = kGroupElems,
          .block_bytes = layout.block_bytes,
          .pack = pack_blocks<layout>,
          .has_minima = layout.n_halves == 2};
}

template <int elem_bytes>
void pack_floats(const std::byte* from, int n_elems, std::byte* segment, int row) {
  constexpr int kElems = 16 / elem_bytes;  // elements per piece
  for (int e = 0; e < n_elems; e += kElems) {
    const int n = n_elems - e < kElems ? n_elems - e : kElems;
    std::memcpy(piece(segment, e * elem_bytes, 16, row), from + e * elem_bytes, static_cast<size_t>(n * elem_bytes));
  }
}

template <int elem_bytes>
constexpr PanelFormat float_panel(std::string_view name) {
  return {.name = name,
          .header_bytes = 0,
          .group_bytes = kGroupElems * elem_bytes,
          .q8_block = 0,
          .block_elems = 1,
          .block_bytes = elem_bytes,
          .pack = pack_floats<elem_bytes>};
}

}  // namespace zinc::gpu
