// MXFP4: a scale for which the largest magnitude is in [4, 8), and cut if above 6, or the next power of two, whichever
// loses less: a cut may lose less than coarser steps for all others.
#include <bit>
#include <limits>

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

constexpr float kNoLimit = std::numeric_limits<float>::max();

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
  constexpr int kFine = -2, kCoarse = -1;
  const float fine = fp4_error<32>(x.data(), w.data(), power_of_2(kFine), power_of_2(-kFine));
  const float coarse = fp4_error<32>(x.data(), w.data(), power_of_2(kCoarse), power_of_2(-kCoarse));
  const int scale = coarse < fine ? kCoarse : kFine;
  block.e = static_cast<uint8_t>(exponent + scale + 127);
  uint8_t codes[32];
  fp4_codes(x.data(), power_of_2(-scale), codes);
  for (size_t j = 0; j < 16; ++j) block.q[j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_mxfp4 = {.format = k_mxfp4,
                                            .quantize = quantize_row<Block, quantize_block, kNoLimit>};

}  // namespace zinc
