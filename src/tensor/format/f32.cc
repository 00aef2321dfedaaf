// F32: IEEE-754 binary32, little-endian. One element per block.
#include <cstring>

#include "base/check.h"
#include "tensor/format.h"

namespace zinc {
namespace {

void dequantize(std::span<const std::byte> blocks, std::span<float> out) {
  ZINC_CHECK(blocks.size() == out.size_bytes());
  std::memcpy(out.data(), blocks.data(), blocks.size());
}

void quantize(std::span<const float> in, std::span<std::byte> blocks) {
  ZINC_CHECK(blocks.size() == in.size_bytes());
  std::memcpy(blocks.data(), in.data(), blocks.size());
}

}  // namespace

extern const Format k_f32 = {
    .name = "f32", .gguf_id = 0, .block_elems = 1, .block_bytes = 4, .dequantize = dequantize, .quantize = quantize};

}  // namespace zinc
