// NVFP4: 64 elements in 4 groups of 16, E2M1 values times an unsigned E4M3 scale per group.
#include <bit>

#include "tensor/block.h"
#include "tensor/fp4.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 64;
  uint8_t scale[4];
  uint8_t q[32];  // 8 bytes per group: low nibbles hold elements 0-7, high nibbles 8-15
};
static_assert(sizeof(Block) == 36);

// Half of an unsigned E4M3 (bias 7, no infinity); NaN reads as 0.
float half_scale(uint8_t bits) {
  if (bits == 0x7F) return 0.0f;
  const int exponent = bits >> 3 & 15;
  const float mantissa = static_cast<float>(bits & 7);
  if (exponent == 0) return mantissa * 0x1p-10f;
  return (8.0f + mantissa) * std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 - 4 + 127) << 23);
}

void dequantize_block(const Block& block, BlockElements<Block> out) {
  for (size_t group = 0; group < 4; ++group) {
    const float d = half_scale(block.scale[group]);
    const uint8_t* q = block.q + group * 8;
    float* to = out.data() + group * 16;
    for (size_t j = 0; j < 8; ++j) to[j] = static_cast<float>(kTwiceFp4[q[j] & 15]) * d;
    for (size_t j = 0; j < 8; ++j) to[j + 8] = static_cast<float>(kTwiceFp4[q[j] >> 4]) * d;
  }
}

}  // namespace

extern const Format k_nvfp4 = block_format<Block, dequantize_block>("nvfp4", 40);

}  // namespace zinc
