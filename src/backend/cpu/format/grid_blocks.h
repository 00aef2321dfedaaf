// The IQ formats below four bits: blocks of 256 in groups of 16 or 32: x = kFactor * d * (2 * s[g] + 1) * value, s of 4
// bits. On disk the values are points of a grid; here they are codes of a table, which takes more memory (3 bits
// instead of 2 for IQ2) but no lookup of a point per row (docs/adr/0057-grid-formats-as-codes.md).
// Panel block: d f16[16], s in nibbles, padding to whole cache lines, codes.
#pragma once

#include <array>

#include "backend/cpu/format/code_planes.h"
#include "tensor/iq_grids.h"

namespace zinc::cpu::ZINC_ISA {

inline constexpr uint32_t kEachByte = 0x01010101;

struct GridRow {  // one row's block
  uint16_t d;
  uint8_t scales[16];
  uint8_t codes[kCodes];
};

// Kind, besides what add_pair needs:
//   struct FileBlock
//   read(file_block, grid_row)
//   kFactor
template <class Kind>
struct GridBlock {
  static constexpr ActivationFormat kActivationFormat = ActivationFormat::q8_blocks_of_256;
  static constexpr size_t kGroups = kCodes / Kind::kGroupCodes, kScalesOffset = 32,
                          kPaddingOffset = kScalesOffset + kGroups * kPanelRows / 2,
                          kHeaderBytes = (kPaddingOffset + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  static constexpr uint16_t kBlockElems = kCodes, kPanelBlockBytes = kHeaderBytes + Kind::Codes::kBytes;

  static void pack(const std::byte* const* row_blocks, uint8_t* out) {
    std::memset(out + kPaddingOffset, 0, kHeaderBytes - kPaddingOffset);
    GridRow rows[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) {
      typename Kind::FileBlock file_block;
      std::memcpy(&file_block, row_blocks[r], sizeof file_block);
      Kind::read(file_block, rows[r]);
      std::memcpy(out + r * 2, &rows[r].d, 2);
      Kind::Codes::put(rows[r].codes, r, out + kHeaderBytes);
    }
    for (size_t i = 0; i < kGroups * kPanelRows; ++i)
      put_nibble(out + kScalesOffset, i, rows[i % kPanelRows].scales[i / kPanelRows]);
  }

  template <int N>
  static void multiply(const uint8_t* w, size_t block, const TokenActivation* x, F (&acc)[N]) {
    uint8_t scales[kGroups * kPanelRows];
    get_nibbles(w + kScalesOffset, scales);
    for (size_t i = 0; i < sizeof scales; i += kVectorBytes) {
      b_store(scales + i, b_or(b_shift_left<1>(b_load(scales + i)), b_set(1)));
    }
    F sums[N];
    for (int n = 0; n < N; ++n) sums[n] = f_zero();
    add_groups<Kind, N>(w + kHeaderBytes, scales, block, x, sums);
    const F d = f_load_half(reinterpret_cast<const uint16_t*>(w));
    for (int n = 0; n < N; ++n) acc[n] = f_fma(f_mul(d, f_set(x[n].scale[block] * Kind::kFactor)), sums[n], acc[n]);
  }
};

// Codes of levels with a sign: the level's number, then the sign bit.
template <class CodeLayout, int group_codes, int sign_bit, int... levels>
struct SignedLevels {
  using Codes = CodeLayout;
  static constexpr int kGroupCodes = group_codes, kBias = 64;
  static constexpr std::array<uint8_t, 16> kBiasedValues = [] {
    std::array<uint8_t, 16> values{};
    size_t i = 0;
    for (const int level : {levels...}) {
      values[i] = static_cast<uint8_t>(kBias + level);
      values[i++ + (1u << sign_bit)] = static_cast<uint8_t>(kBias - level);
    }
    return values;
  }();
  static B value(B code) { return b_lookup(b_table(kBiasedValues.data()), code); }

  // Four coordinates at a time. Levels are so far apart that a shift gives their number.
  template <int level_shift, size_t kDims>
  static void write(const std::array<int8_t, kDims>& point, uint32_t signs, uint8_t* codes) {
    constexpr uint32_t kLevelMask = ((1u << sign_bit) - 1) * kEachByte;
    for (size_t j = 0; j < kDims; j += 4) {
      const uint32_t four_signs = (signs >> j & 15) * 0x00204081u & kEachByte;  // bit i to bit 8 * i
      const uint32_t word = (word_at(point.data(), j / 4) >> level_shift & kLevelMask) | four_signs << sign_bit;
      std::memcpy(codes + j, &word, 4);
    }
  }
};

template <int group_codes>
struct Iq2Levels : SignedLevels<ThreeBitCodes, group_codes, 2, 8, 25, 43> {
  static constexpr float kFactor = 0.125f;
  static void write_point(const std::array<int8_t, 8>& point, uint32_t signs, uint8_t* codes) {
    Iq2Levels::template write<4>(point, signs, codes);
  }
};

// IQ1: grid coordinates -1, 0, 1, moved by 1/8 or -1/8: eighths of a number.
struct Iq1Values {
  using Codes = SharedThirdBitCodes;
  static constexpr int kGroupCodes = 16, kBias = 64;
  static constexpr float kFactor = 0.125f;
  static constexpr std::array<uint8_t, 16> kBiasedValues = {57, 65, 73, 0, 55, 63, 71};
  static B value(B code) { return b_lookup(b_table(kBiasedValues.data()), code); }
  static void write_point(size_t index, bool is_negative, uint8_t* codes) {
    for (size_t j = 0; j < 2; ++j) {  // -1, 0, 1 are 3, 0, 1 modulo 4
      const uint32_t codes_of_four = ((word_at(kIq1Grid[index].data(), j) & 3 * kEachByte) + kEachByte) & 3 * kEachByte;
      const uint32_t word = codes_of_four | (is_negative ? 4 * kEachByte : 0);
      std::memcpy(codes + j * 4, &word, 4);
    }
  }
};

}  // namespace zinc::cpu::ZINC_ISA
