#include "quantize/block_quantizer.h"
#include "quantize/scale_search.h"

namespace zinc {

extern const Format k_q2_0;

namespace {

struct Block {  // tensor/format/q2_0.cc
  static constexpr size_t kElems = 64;
  uint16_t d;
  uint8_t q[16];
};

// The largest magnitude becomes between d and 2.2 d, with either sign of d: codes are -1, 0, 1 and 2.
Block quantize_block(std::span<const float, 64> x, const RowWeights& importance, size_t begin) {
  std::array<float, 64> w;
  importance.fill<64>(x, begin, 2.0F, w);
  Block block{};
  const float largest = std::abs(largest_magnitude<64>(x.data()));
  std::array<float, 8> inverse;
  for (size_t i = 0; i < 4; ++i) {
    inverse[i] = (1 + 0.4F * static_cast<float>(i)) * inverse_scale(largest);
    inverse[i + 4] = -inverse[i];
  }
  const float d = search_scale<-1, 2, 64>(x.data(), w.data(), inverse).scale;
  block.d = signed_scale_to_half(d);
  const Lanes by = all_lanes(inverse_scale(half_to_float(block.d)));
  for (size_t i = 0; i < 64; i += 4) {
    const Lanes q = round_lanes(clamp_lanes(load_lanes(&x[i]) * by, -1, 2)) + 1.0F;
    block.q[i / 4] = static_cast<uint8_t>(static_cast<int>(sum(q * Lanes{1, 4, 16, 64})));
  }
  return block;
}

}  // namespace

extern const Quantizer k_quantizer_q2_0 = {.format = k_q2_0, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
