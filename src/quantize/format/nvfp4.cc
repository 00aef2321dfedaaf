// NVFP4: for each group the E4M3 scale of least error, among those for which the largest magnitude is between 4 and
// somewhat above 6.
#include "quantize/block_quantizer.h"
#include "quantize/fp4_lanes.h"
#include "quantize/scale_search.h"
#include "tensor/fp8.h"

namespace zinc {

extern const Format k_nvfp4;

namespace {

struct Block {  // tensor/format/nvfp4.cc
  static constexpr size_t kElems = 64;
  uint8_t scale[4];
  uint8_t q[32];
};

uint8_t best_scale(const float* x, const float* w) {
  constexpr int kLargestCode = 126, kBelow = 2;  // 127 is not a number
  const float largest = std::abs(largest_magnitude<16>(x));
  const int first = float_to_e4m3(largest / kLargestFp4) - kBelow;
  float d[2 * kLanes];
  int codes[2 * kLanes];
  for (int i = 0; i < static_cast<int>(2 * kLanes); ++i) {
    codes[i] = std::clamp(first + i, 1, kLargestCode);
    d[i] = e4m3_to_float(static_cast<uint8_t>(codes[i]));
  }
  const Lanes d0 = load_lanes(d), d1 = load_lanes(d + kLanes);
  const Lanes error0 = fp4_errors<16>(x, w, d0, 1.0F / d0), error1 = fp4_errors<16>(x, w, d1, 1.0F / d1);
  const size_t lane0 = index_of_largest(-error0), lane1 = index_of_largest(-error1);
  return static_cast<uint8_t>(error1[lane1] < error0[lane0] ? codes[kLanes + lane1] : codes[lane0]);
}

Block quantize_block(std::span<const float, 64> x, const RowWeights& importance, size_t begin) {
  std::array<float, 64> w;
  importance.fill<64>(x, begin, 2.0F, w);
  Block block{};
  for (size_t group = 0; group < 4; ++group) {
    const float* from = x.data() + group * 16;
    block.scale[group] = best_scale(from, w.data() + group * 16);
    uint8_t codes[16];
    fp4_codes(from, 1 / e4m3_to_float(block.scale[group]), codes);
    for (size_t j = 0; j < 8; ++j) block.q[group * 8 + j] = static_cast<uint8_t>(codes[j] | codes[j + 8] << 4);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_nvfp4 = {.format = k_nvfp4, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
