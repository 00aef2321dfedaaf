#include <algorithm>
#include <array>

#include "base/check.h"
#include "quantize/quantizer.h"

namespace zinc {

extern const Format k_q8_0;

namespace {

// 8 bits need no search. Elements are cut where the scale would be infinite in f16.
void quantize(std::span<const float> row, std::span<const float> /*importance*/, std::span<std::byte> blocks) {
  constexpr size_t kElems = 32, kBytes = 34;
  constexpr float kLargest = 65504.0F * 127;
  ZINC_CHECK(row.size() % kElems == 0 && row.size() / kElems * kBytes == blocks.size());
  for (size_t block = 0; block * kElems < row.size(); ++block) {
    std::array<float, kElems> x;
    for (size_t i = 0; i < kElems; ++i) x[i] = std::clamp(row[block * kElems + i], -kLargest, kLargest);
    k_q8_0.quantize(x, blocks.subspan(block * kBytes, kBytes));
  }
}

}  // namespace

extern const Quantizer k_quantizer_q8_0 = {.format = k_q8_0, .quantize = quantize};

}  // namespace zinc
