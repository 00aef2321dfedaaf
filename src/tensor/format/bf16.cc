// BF16: the upper half of a binary32, little-endian. One element per block.
#include <cstring>

#include "base/check.h"
#include "tensor/format.h"
#include "tensor/half.h"

namespace zinc {
namespace {

void dequantize(std::span<const std::byte> blocks, std::span<float> out) {
  ZINC_CHECK(blocks.size() == out.size() * sizeof(uint16_t));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bfloat;
    std::memcpy(&bfloat, blocks.data() + i * sizeof(bfloat), sizeof(bfloat));
    out[i] = bfloat_to_float(bfloat);
  }
}

void quantize(std::span<const float> in, std::span<std::byte> blocks) {
  ZINC_CHECK(blocks.size() == in.size() * sizeof(uint16_t));
  for (size_t i = 0; i < in.size(); ++i) {
    const uint16_t bfloat = float_to_bfloat(in[i]);
    std::memcpy(blocks.data() + i * sizeof(bfloat), &bfloat, sizeof(bfloat));
  }
}

}  // namespace

extern const Format k_bf16 = {
    .name = "bf16", .gguf_id = 30, .block_elems = 1, .block_bytes = 2, .dequantize = dequantize, .quantize = quantize};

}  // namespace zinc
