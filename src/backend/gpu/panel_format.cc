#include "backend/gpu/panel_format.h"

#include <cstdint>
#include <cstring>

#include "base/ceil_div.h"

namespace zinc::gpu {
namespace {

uint8_t byte_at(const std::byte* from, int i) { return static_cast<uint8_t>(from[i]); }

// Address of a row's piece of `width` bytes at offset `begin` of its part of the segment.
std::byte* piece(std::byte* segment, int begin, int width, int row) {
  return segment + kPanelRows * begin + row * width;
}

// One quant group's 16 bytes of nibbles: byte j has element j in its low nibble, element j + 16 in its high nibble.
template <class Nibble>
void pack_nibbles(std::byte* to, const Nibble& nibble) {
  for (int j = 0; j < 16; ++j) to[j] = static_cast<std::byte>(nibble(j) | nibble(j + 16) << 4);
}

// Layout of a quant block of 32 that is also a quant group: scales go to the header, fifth bits and quants to the
// group.
struct BlockLayout {
  int block_bytes, header_bytes, group_bytes;
  int n_halves;    // f16 values: scale, or scale and minimum
  int fifth_bits;  // offset of the fifth bits; -1: none
  int quants, n_quant_bytes;
};

void pack_layout(const BlockLayout& b, const std::byte* from, int n_elems, std::byte* segment, int row) {
  for (int g = 0; g < n_elems / kGroupElems; ++g, from += b.block_bytes) {
    for (int h = 0; h < b.n_halves; ++h) std::memcpy(piece(segment, 16 * h, 16, row) + 2 * g, from + 2 * h, 2);
    const int begin = b.header_bytes + g * b.group_bytes;
    for (int n = 0; n < b.n_quant_bytes; n += 16) {
      std::memcpy(piece(segment, begin + n, 16, row), from + b.quants + n, 16);
    }
    if (b.fifth_bits >= 0) std::memcpy(piece(segment, begin + 16, 4, row), from + b.fifth_bits, 4);
  }
}

template <int block_bytes, int header_bytes, int group_bytes, int n_halves, int fifth_bits, int quants,
          int n_quant_bytes>
void pack_blocks(const std::byte* from, int n_elems, std::byte* segment, int row) {
  pack_layout({block_bytes, header_bytes, group_bytes, n_halves, fifth_bits, quants, n_quant_bytes}, from, n_elems,
              segment, row);
}

void pack_mxfp4(const std::byte* from, int n_elems, std::byte* segment, int row) {
  for (int g = 0; g < n_elems / kGroupElems; ++g, from += 17) {
    piece(segment, 0, 8, row)[g] = from[0];
    std::memcpy(piece(segment, 8 + g * 16, 16, row), from + 1, 16);
  }
}

void pack_q4_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from, 16);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const std::byte* q = from + 16 + g / 2 * 32;
    pack_nibbles(piece(segment, 16 + g * 16, 16, row), [&](int e) { return byte_at(q, e) >> g % 2 * 4 & 15; });
  }
}

void pack_q5_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from, 16);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const std::byte* q = from + 48 + g / 2 * 32;
    const int begin = 16 + g * 20;
    pack_nibbles(piece(segment, begin, 16, row), [&](int e) { return byte_at(q, e) >> g % 2 * 4 & 15; });
    uint32_t bits = 0;
    for (int e = 0; e < kGroupElems; ++e) bits |= static_cast<uint32_t>(byte_at(from, 16 + e) >> g & 1) << e;
    std::memcpy(piece(segment, begin + 16, 4, row), &bits, 4);
  }
}

void pack_q6_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from + 192, 16);
  std::memcpy(piece(segment, 16, 4, row), from + 208, 2);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const int begin = 20 + g * 24, quarter = g % 4;
    pack_nibbles(piece(segment, begin, 16, row),
                 [&](int e) { return byte_at(from, g / 4 * 64 + quarter % 2 * 32 + e) >> quarter / 2 * 4 & 15; });
    uint32_t top[2] = {0, 0};
    for (int e = 0; e < kGroupElems; ++e) {
      const uint32_t bits = byte_at(from, 128 + g / 4 * 32 + e) >> quarter * 2 & 3;
      top[e / 16] |= bits << (e % 4 * 8 + e % 16 / 4 * 2);
    }
    std::memcpy(piece(segment, begin + 16, 8, row), top, 8);
  }
}

void pack_iq4_xs(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 8, row), from, 8);
  for (int g = 0; g < kSegmentGroups; ++g) std::memcpy(piece(segment, 8 + g * 16, 16, row), from + 8 + g * 16, 16);
}

template <int elem_bytes>
void pack_floats(const std::byte* from, int n_elems, std::byte* segment, int row) {
  constexpr int kElems = 16 / elem_bytes;  // elements per piece
  for (int e = 0; e < n_elems; e += kElems) {
    const int n = n_elems - e < kElems ? n_elems - e : kElems;
    std::memcpy(piece(segment, e * elem_bytes, 16, row), from + e * elem_bytes, static_cast<size_t>(n * elem_bytes));
  }
}

}  // namespace

const PanelFormat kPanelFormats[] = {
    {"f32", 0, 128, 0, 1, 4, pack_floats<4>},
    {"f16", 0, 64, 0, 1, 2, pack_floats<2>},
    {"bf16", 0, 64, 0, 1, 2, pack_floats<2>},
    {"q4_0", 16, 16, 32, 32, 18, pack_blocks<18, 16, 16, 1, -1, 2, 16>},
    {"q4_1", 32, 16, 32, 32, 20, pack_blocks<20, 32, 16, 2, -1, 4, 16>, true},
    {"q5_0", 16, 20, 32, 32, 22, pack_blocks<22, 16, 20, 1, 2, 6, 16>},
    {"q5_1", 32, 20, 32, 32, 24, pack_blocks<24, 32, 20, 2, 4, 8, 16>, true},
    {"q8_0", 16, 32, 32, 32, 34, pack_blocks<34, 16, 32, 1, -1, 2, 32>},
    {"iq4_nl", 16, 16, 32, 32, 18, pack_blocks<18, 16, 16, 1, -1, 2, 16>},
    {"mxfp4", 8, 16, 32, 32, 17, pack_mxfp4, false, true},
    {"q4_k", 16, 16, 256, 256, 144, pack_q4_k, true},
    {"q5_k", 16, 20, 256, 256, 176, pack_q5_k, true},
    {"q6_k", 20, 24, 256, 256, 210, pack_q6_k},
    {"iq4_xs", 8, 16, 256, 256, 136, pack_iq4_xs},
    {"", 0, 0, 0, 0, 0, nullptr},
};

const PanelFormat* find_panel_format(std::string_view name) {
  for (const PanelFormat* f = kPanelFormats; !f->name.empty(); ++f) {
    if (f->name == name) return f;
  }
  return nullptr;
}

PanelLayout panel_layout(const PanelFormat& format, int64_t n_out, int64_t n_in, bool pads_last_segment) {
  const int64_t n_segments = ceil_div(n_in, kSegmentElems);
  const int64_t n_last_inputs = n_in - (n_segments - 1) * kSegmentElems;
  const int n_last_groups = pads_last_segment ? kSegmentGroups : static_cast<int>(ceil_div(n_last_inputs, kGroupElems));
  const int64_t panel_bytes = (n_segments - 1) * format.segment_bytes() + format.segment_bytes(n_last_groups);
  return {.n_in = static_cast<int>(n_in),
          .n_out = static_cast<int>(n_out),
          .n_segments = static_cast<int>(n_segments),
          .n_last_groups = n_last_groups,
          .panel_bytes = panel_bytes,
          .matrix_bytes = panel_bytes * ceil_div(n_out, kPanelRows)};
}

}  // namespace zinc::gpu
