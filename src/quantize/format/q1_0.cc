#include "quantize/block_quantizer.h"
#include "quantize/scale_search.h"

namespace zinc {

extern const Format k_q1_0;

namespace {

struct Block {  // tensor/format/q1_0.cc
  static constexpr size_t kElems = 128;
  uint16_t d;
  uint8_t positive[16];
};

// The best d for d * sign(x) is the mean of |x|, weighted by importance alone: a large element is not met any better.
Block quantize_block(std::span<const float, 128> x, const RowWeights& importance, size_t begin) {
  std::array<float, 128> w;
  importance.fill_with_importance<128>(begin, w);
  Lanes p{}, a{};
  for (size_t i = 0; i < 128; i += kLanes) {
    const Lanes xi = load_lanes(&x[i]), wi = load_lanes(&w[i]);
    p += wi * max_lanes(xi, -xi);
    a += wi;
  }
  Block block{};
  block.d = float_to_half(std::min(kLargestHalf, sum(p) / std::max(sum(a), 1e-37F)));
  for (size_t j = 0; j < 128; ++j) {
    block.positive[j / 8] = static_cast<uint8_t>(block.positive[j / 8] | (x[j] >= 0) << j % 8);
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q1_0 = {.format = k_q1_0, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
