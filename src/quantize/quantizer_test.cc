#include "quantize/quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace zinc {
namespace {

TEST(Quantizer, every_quantizer_is_found_by_its_format) {
  for (const Quantizer* const* q = kQuantizers; *q != nullptr; ++q) {
    EXPECT_EQ(find_quantizer((*q)->format), *q) << (*q)->format.name;
  }
}

TEST(Quantizer, a_row_of_zeros_stays_zero_in_every_format) {
  for (const Quantizer* const* q = kQuantizers; *q != nullptr; ++q) {
    const Format& format = (*q)->format;
    const std::vector<float> row(2 * size_t{format.block_elems});
    std::vector<std::byte> blocks(row_bytes(format, row.size()));
    (*q)->quantize(row, {}, blocks);
    std::vector<float> out(row.size(), 1.0F);
    format.dequantize(blocks, out);
    for (const float x : out) EXPECT_EQ(std::abs(x), 0.0F) << format.name;
  }
}

}  // namespace
}  // namespace zinc
