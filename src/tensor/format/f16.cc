// F16: IEEE-754 binary16, little-endian. One element per block.
#include <cstring>

#include "base/check.h"
#include "tensor/format.h"
#include "tensor/half.h"

namespace zinc {
namespace {

void dequantize(std::span<const std::byte> blocks, std::span<float> out) {
  ZINC_CHECK(blocks.size() == out.size() * sizeof(uint16_t));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, blocks.data() + i * sizeof(half), sizeof(half));
    out[i] = half_to_float(half);
  }
}

void quantize(std::span<const float> in, std::span<std::byte> blocks) {
  ZINC_CHECK(blocks.size() == in.size() * sizeof(uint16_t));
  for (size_t i = 0; i < in.size(); ++i) {
    const uint16_t half = float_to_half(in[i]);
    std::memcpy(blocks.data() + i * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace

extern const Format k_f16 = {
    .name = "f16", .gguf_id = 1, .block_elems = 1, .block_bytes = 2, .dequantize = dequantize, .quantize = quantize};

}  // namespace zinc
