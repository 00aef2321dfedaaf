// MXFP4: of the four powers of two around the one that keeps the largest magnitude from being cut at 6, the one of
// least error. A cut may lose less than coarser steps for all others.
#include <bit>

#include "quantize/block_quantizer.h"
#include "quantize/fp4_lanes.h"
#include "quantize/scale_search.h"

namespace zinc {

extern const Format k_mxfp4;

namespace {

struct Block {  // tensor/format/mxfp4.cc
  static constexpr size_t kElems = 32;
  uint8_t e;
  uint8_t q[16];
};

float power_of_2(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

Block quantize_block(std::span<const float, 32> row, const RowWeights& importance, size_t begin) {
  constexpr int kLeast = -120;  // smaller ones are subnormal and read as zero by some
  const float largest = std::abs(largest_magnitude<32>(row.data()));
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - 127;
  Block block{};
  if (exponent < kLeast) return block;
  // Elements relative to 2^exponent are below 2.
  const float first_half = power_of_2(-exponent / 2), second_half = power_of_2(-exponent - -exponent / 2);
  std::array<float, 32> x, w;
  for (size_t i = 0; i < 32; ++i) x[i] = row[i] * first_half * second_half;
  importance.fill<32>(x, begin, 2.0F, w);
  constexpr int kFirst = -3;  // 2^exponent / 2^kFirst is 8
  const Lanes d{power_of_2(kFirst), power_of_2(kFirst + 1), power_of_2(kFirst + 2), power_of_2(kFirst + 3)};
  const Lanes error = fp4_errors<32>(x.data(), w.data(), d, 1.0F / d);
  const int scale = kFirst + static_cast<int>(index_of_largest(-error));
  block.e = static_cast<uint8_t>(exponent + scale + 127);
  uint8_t codes[32];
  fp4_codes(x.data(), power_of_2(-scale), codes);
  for (size_t j = 0; j < 16; ++j) block.q[j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_mxfp4 = {.format = k_mxfp4, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
