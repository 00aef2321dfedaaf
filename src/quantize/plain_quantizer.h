// For formats whose own quantize() loses least whatever the importance of a column.
#pragma once

#include "quantize/quantizer.h"

namespace zinc {

template <const Format& format>
void quantize_plain(std::span<const float> row, std::span<const float> /*importance*/, std::span<std::byte> blocks) {
  format.quantize(row, blocks);
}

}  // namespace zinc
