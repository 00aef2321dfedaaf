// Q4_0: 32 elements, d * (q - 8) with 4-bit q. Byte j holds element j (low nibble) and j + 16 (high nibble).
#include <algorithm>
#include <cmath>

#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint16_t d;  // f16
  uint8_t q[16];
};
static_assert(sizeof(Block) == 18);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t j = 0; j < 16; ++j) out[j] = static_cast<float>((block.q[j] & 15) - 8) * d;
  for (size_t j = 0; j < 16; ++j) out[j + 16] = static_cast<float>((block.q[j] >> 4) - 8) * d;
}

// The element of largest magnitude becomes -8 (of two, the negative one); the others are rounded half up.
void quantize_block(std::span<const float, 32> in, Block& block) {
  float positive = 0.0f, negative = 0.0f;  // largest magnitudes
  for (const float value : in) {
    positive = std::max(positive, value);
    negative = std::max(negative, -value);
  }
  const float d = positive > negative ? positive / -8.0f : negative / 8.0f;
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  const auto quantize = [&](float value) -> int {
    const float q = std::floor(value * inverse + 8.5f);
    return std::isnan(q) ? 8 : static_cast<int>(std::clamp(q, 0.0f, 15.0f));  // 8: zero
  };
  block.d = float_to_half(d);
  for (size_t j = 0; j < 16; ++j) block.q[j] = static_cast<uint8_t>(quantize(in[j]) | quantize(in[j + 16]) << 4);
}

constexpr Format with_quantize(Format format) {
  format.quantize = quantize_blocks<Block, quantize_block>;
  return format;
}

}  // namespace

extern const Format k_q4_0 = with_quantize(block_format<Block, dequantize_block>("q4_0", 2));

}  // namespace zinc
