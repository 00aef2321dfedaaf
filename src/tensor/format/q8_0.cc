// Q8_0: 32 elements, d * q with signed bytes q.
#include <algorithm>
#include <cmath>

#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint16_t d;  // f16
  int8_t q[32];
};
static_assert(sizeof(Block) == 34);

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(block.q[j]) * d;
}

// d is the largest magnitude divided by 127; rounds half away from zero.
void quantize_block(std::span<const float, 32> in, Block& block) {
  float largest = 0.0f;
  for (const float value : in) largest = std::max(largest, std::abs(value));
  const float d = largest / 127.0f;
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  block.d = float_to_half(d);
  for (size_t j = 0; j < 32; ++j) {
    const float q = std::round(in[j] * inverse);
    block.q[j] = std::abs(q) <= 127.0f ? static_cast<int8_t>(q) : int8_t{0};  // 0: not a number, or d underflowed
  }
}

constexpr Format with_quantize(Format format) {
  format.quantize = quantize_blocks<Block, quantize_block>;
  return format;
}

}  // namespace

extern const Format k_q8_0 = with_quantize(block_format<Block, dequantize_block>("q8_0", 8));

}  // namespace zinc
