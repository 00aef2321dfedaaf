// FP8: 32 elements, E4M3 values times the power of two 2^(e - 127); KV cache only. OCP MXFP8 blocks, quantized with two
// differences: no element of a block saturates, and e is clamped so that every element is exactly representable in f16.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/block.h"
#include "tensor/fp8.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 32;
  uint8_t e;
  uint8_t q[32];
};
static_assert(sizeof(Block) == 33);

// 2^-14: the smallest element is then 2^-23. 2^7: the largest is then 57344. Both are representable in f16.
constexpr uint32_t kMinExponent = 127 - 14, kMaxExponent = 127 + 7;

float exp2_from_bits(uint32_t e) { return std::bit_cast<float>(e << 23); }

void dequantize_block(const Block& block, BlockElements<Block> out) {
  for (size_t j = 0; j < 32; ++j) out[j] = e4m3_to_float(block.q[j]) * exp2_from_bits(block.e);
}

// The smallest power of two that scales all elements to at most 448 = 1.75 * 2^8; a larger mantissa rounds the exponent
// up.
uint32_t exponent_for(float largest) {
  const uint32_t rounded = (std::bit_cast<uint32_t>(largest) + 0x1FFFFFu) >> 23;
  return std::clamp(rounded, kMinExponent + 8, kMaxExponent + 8) - 8;
}

void quantize_block(std::span<const float, 32> in, Block& block) {
  float largest = 0.0f;
  for (const float value : in) largest = std::max(largest, std::abs(value));
  block.e = static_cast<uint8_t>(exponent_for(largest));
  const float inverse = exp2_from_bits(254u - block.e);
  for (size_t j = 0; j < 32; ++j) {
    block.q[j] = std::isnan(in[j]) ? uint8_t{0} : float_to_e4m3(in[j] * inverse);  // as in Q8_0
  }
}

constexpr Format with_quantize(Format format) {
  format.quantize = quantize_blocks<Block, quantize_block>;
  return format;
}

}  // namespace

extern const Format k_fp8 = with_quantize(block_format<Block, dequantize_block>("fp8", kNoGgufType));

}  // namespace zinc
