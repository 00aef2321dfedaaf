// Blocks of 256 codes of 2, 3 or 4 bits in 16 rows, and their dot products with the activations, in groups of 16 or 32
// codes with a scale each. A vector holds, of each row, quad v (codes 4v..4v+3) of several groups of 32. Vectors are
// read as pairs of groups 2p and 2p+1, as in k_groups.h.
//
// Codes (the layouts below):
//   kBytes
//   put(codes, row, out)              packs the 256 codes of a row, one per byte
//   get<pair>(w, v, even, odd)        the codes of quad v of both groups
#pragma once

#include "backend/cpu/format/k_groups.h"

namespace zinc::cpu::ZINC_ISA {

inline constexpr size_t kCodes = 256;

// Bits 2g and 2g+1 of the vectors of half h: group 4h + g.
struct TwoBitCodes {
  static constexpr size_t kBytes = 16 * kVectorBytes;

  static void put(const uint8_t* codes, size_t row, uint8_t* out) {
    for (size_t v = 0; v < 16; ++v) {
      uint32_t word = 0;
      for (size_t g = 0; g < 4; ++g) word |= (word_at(codes, v / 8 * 32 + g * 8 + v % 8) & 0x03030303u) << 2 * g;
      put_word(out + v * kVectorBytes, row, word);
    }
  }

  template <int pair>
  static void get(const uint8_t* w, size_t v, B& even, B& odd) {
    const B bits = b_load(w + (pair / 2 * 8 + v) * kVectorBytes), mask = b_set(3);
    even = b_and(b_move_bit<pair % 2 * 4, 0>(bits), mask);
    odd = b_and(b_move_bit<pair % 2 * 4 + 2, 0>(bits), mask);
  }
};

// Third bits, of eight groups: bit g of the vector's bytes belongs to group g.
template <int pair>
void add_third_bits(B bits, B& even, B& odd) {
  const B third = b_set(4);
  even = b_or(even, b_and(b_move_bit<2 * pair, 2>(bits), third));
  odd = b_or(odd, b_and(b_move_bit<2 * pair + 1, 2>(bits), third));
}

// Eight vectors of third bits, then the low bits.
struct ThreeBitCodes {
  static constexpr size_t kThirdBitBytes = 8 * kVectorBytes, kBytes = kThirdBitBytes + TwoBitCodes::kBytes;

  static void put(const uint8_t* codes, size_t row, uint8_t* out) {
    for (size_t v = 0; v < 8; ++v) {
      uint32_t word = 0;
      for (size_t g = 0; g < 8; ++g) word |= (word_at(codes, g * 8 + v) >> 2 & 0x01010101u) << g;
      put_word(out + v * kVectorBytes, row, word);
    }
    TwoBitCodes::put(codes, row, out + kThirdBitBytes);
  }

  template <int pair>
  static void get(const uint8_t* w, size_t v, B& even, B& odd) {
    TwoBitCodes::get<pair>(w + kThirdBitBytes, v, even, odd);
    add_third_bits<pair>(b_load(w + v * kVectorBytes), even, odd);
  }
};

// The same, but eight consecutive codes share their third bit: byte j of a row's four holds those of codes 8j..8j+7 of
// each group.
struct SharedThirdBitCodes {
  static constexpr size_t kBytes = kVectorBytes + TwoBitCodes::kBytes;

  static void put(const uint8_t* codes, size_t row, uint8_t* out) {
    for (size_t j = 0; j < 4; ++j) {
      uint8_t bits = 0;
      for (size_t g = 0; g < 8; ++g) bits = static_cast<uint8_t>(bits | (codes[g * 32 + j * 8] >> 2 & 1) << g);
      out[row * 4 + j] = bits;
    }
    TwoBitCodes::put(codes, row, out + kVectorBytes);
  }

  template <int pair>
  static void get(const uint8_t* w, size_t v, B& even, B& odd) {
    TwoBitCodes::get<pair>(w + kVectorBytes, v, even, odd);
    add_third_bits<pair>(b_lookup(b_load(w), b_table(kByteOfFour[v / 2])), even, odd);
  }

 private:
  static constexpr uint8_t kByteOfFour[4][16] = {{0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12},
                                                 {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13},
                                                 {2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14},
                                                 {3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15}};
};

// The even group's in the low nibbles, the odd group's in the high nibbles.
struct FourBitCodes {
  static constexpr size_t kBytes = kNibbleBytes;

  static void put(const uint8_t* codes, size_t row, uint8_t* out) {
    for (size_t v = 0; v < 32; ++v) {
      const size_t word = v / 8 * 16 + v % 8;
      put_word(out + v * kVectorBytes, row, word_at(codes, word) | word_at(codes, word + 8) << 4);
    }
  }

  template <int pair>
  static void get(const uint8_t* w, size_t v, B& even, B& odd) {
    const B both = b_load(w + pair * kPairBytes + v * kVectorBytes);
    even = b_low_nibbles(both);
    odd = b_high_nibbles(both);
  }
};

// Kind:
//   Codes
//   kGroupCodes                       16 or 32
//   kBias                             added to each code's value to make it at most 127 and not negative
//   value(code)                       B -> B, codes to biased values
// sums[n] += scale * (values of the group * activations) of both groups of a pair; scales s8[groups][16].
template <class Kind, int pair, int N>
void add_pair(const uint8_t* codes, const uint8_t* scales, size_t block, const TokenActivation* x, F (&sums)[N]) {
  constexpr size_t kQuads = Kind::kGroupCodes / 4, kGroupsOf32 = 32 / Kind::kGroupCodes;
  for (size_t part = 0; part < kGroupsOf32; ++part) {
    I even[N], odd[N];
    for (int n = 0; n < N; ++n) {
      const int16_t* x_sums = Kind::kGroupCodes == 16 ? x[n].sum16 + block * 16 : x[n].sum32 + block * 8;
      even[n] = i_set(-Kind::kBias * x_sums[2 * pair * kGroupsOf32 + part]);
      odd[n] = i_set(-Kind::kBias * x_sums[(2 * pair + 1) * kGroupsOf32 + part]);
    }
    for (size_t v = part * kQuads; v < (part + 1) * kQuads; ++v) {
      B low, high;
      Kind::Codes::template get<pair>(codes, v, low, high);
      dot_pair<N>(even, odd, Kind::value(low), Kind::value(high), x, block * kCodes + pair * 64 + v * 4);
    }
    const int8_t* scale = reinterpret_cast<const int8_t*>(scales) + (2 * pair * kGroupsOf32 + part) * kPanelRows;
    add_scaled<N>(sums, even, i_to_f(i_load_s8(scale)));
    add_scaled<N>(sums, odd, i_to_f(i_load_s8(scale + kGroupsOf32 * kPanelRows)));
  }
}

template <class Kind, int N>
void add_groups(const uint8_t* codes, const uint8_t* scales, size_t block, const TokenActivation* x, F (&sums)[N]) {
  add_pair<Kind, 0, N>(codes, scales, block, x, sums);
  add_pair<Kind, 1, N>(codes, scales, block, x, sums);
  add_pair<Kind, 2, N>(codes, scales, block, x, sums);
  add_pair<Kind, 3, N>(codes, scales, block, x, sums);
}

// Bytes of 4 bits, such as scales, two in a byte: of each 128, the first 64 in the low nibbles.
// put_nibble: REQUIRES: ascending index, because the first of a byte clears it.
inline void put_nibble(uint8_t* nibbles, size_t index, int nibble) {
  uint8_t& both = nibbles[index / 128 * kVectorBytes + index % kVectorBytes];
  both = static_cast<uint8_t>(index % 128 < kVectorBytes ? nibble : both | nibble << 4);
}
template <size_t n>
void get_nibbles(const uint8_t* nibbles, uint8_t (&bytes)[n]) {
  static_assert(n % (2 * kVectorBytes) == 0);
  for (size_t v = 0; v < n / kVectorBytes; v += 2) {
    const B both = b_load(nibbles + v / 2 * kVectorBytes);
    b_store(bytes + v * kVectorBytes, b_low_nibbles(both));
    b_store(bytes + (v + 1) * kVectorBytes, b_high_nibbles(both));
  }
}

}  // namespace zinc::cpu::ZINC_ISA
