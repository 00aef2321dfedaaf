// TQ1_0: 256 elements of d * {-1, 0, 1}, five base-3 digits per byte. A byte is a fraction of 256: multiplied by 3,
// the carry out of 8 bits is the next digit.
#include "tensor/block.h"
#include "tensor/half.h"

namespace zinc {
namespace {

struct Block {
  static constexpr size_t kElems = 256;
  uint8_t five[48];  // 32 bytes for elements 0-159 (digit n of byte m: element 32 n + m), 16 bytes for 160-239
  uint8_t four[4];   // elements 240-255, digit n of byte m: element 240 + 4 n + m
  uint16_t d;        // f16
};
static_assert(sizeof(Block) == 54);

constexpr uint8_t kPowersOf3[5] = {1, 3, 9, 27, 81};

// Digit n of each of the n_bytes bytes; returns where the next digits go.
float* decode_digits(const uint8_t* bytes, size_t n_bytes, size_t n_digits, float d, float* to) {
  for (size_t n = 0; n < n_digits; ++n) {
    for (size_t m = 0; m < n_bytes; ++m) {
      const uint8_t rest = static_cast<uint8_t>(bytes[m] * kPowersOf3[n]);  // modulo 256: earlier digits fall off
      *to++ = static_cast<float>((rest * 3 >> 8) - 1) * d;
    }
  }
  return to;
}

void dequantize_block(const Block& block, BlockElements<Block> out) {
  const float d = half_to_float(block.d);
  float* to = decode_digits(block.five, 32, 5, d, out.data());
  to = decode_digits(block.five + 32, 16, 5, d, to);
  decode_digits(block.four, 4, 4, d, to);
}

}  // namespace

extern const Format k_tq1_0 = block_format<Block, dequantize_block>("tq1_0", 34);

}  // namespace zinc
