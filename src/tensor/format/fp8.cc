// FP8: 32 elements, E4M3 numbers times the power of two 2^(e - 127); for caches only. The blocks are OCP's MXFP8, with
// two differences in how they are written: no number of a block is cut off, and e is kept where every element is
// exactly a half.
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

// 2^-14: the smallest element is then 2^-23. 2^7: the largest is then 57344. Both are halves.
constexpr uint32_t kLeast = 127 - 14, kMost = 127 + 7;

float power(uint32_t e) { return std::bit_cast<float>(e << 23); }

void decode_block(const Block& block, Decoded<Block> out) {
  for (size_t j = 0; j < 32; ++j) out[j] = e4m3_to_float(block.q[j]) * power(block.e);
}

// The least power of two that leaves nothing above 448, which is 1.75 * 2^8: a larger mantissa counts as the next
// power's.
uint32_t exponent_for(float largest) {
  const uint32_t rounded = (std::bit_cast<uint32_t>(largest) + 0x1FFFFFu) >> 23;
  return std::clamp(rounded, kLeast + 8, kMost + 8) - 8;
}

void encode_block(std::span<const float, 32> in, Block& block) {
  float largest = 0.0f;
  for (const float value : in) largest = std::max(largest, std::abs(value));
  block.e = static_cast<uint8_t>(exponent_for(largest));
  const float inverse = power(254u - block.e);
  for (size_t j = 0; j < 32; ++j) {
    block.q[j] = std::isnan(in[j]) ? uint8_t{0} : float_to_e4m3(in[j] * inverse);  // as Q8_0 has it
  }
}

constexpr Format with_encode(Format format) {
  format.encode = encode_blocks<Block, encode_block>;
  return format;
}

}  // namespace

extern const Format k_fp8 = with_encode(block_format<Block, decode_block>("fp8", kNotInFiles));

}  // namespace zinc
