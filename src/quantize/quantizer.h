// How a weight format is quantized: the search for the scales and codes of a row that lose least. One file per format
// in quantize/format/ defines its record; the folder listing makes kQuantizers. Stateless: any thread.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/format.h"

namespace zinc {

struct Quantizer {
  const Format& format;
  // Below about 3 bits a file made without importance answers nonsense.
  bool needs_importance = false;
  // One row of a matrix. `importance`: the mean of x^2 per column of the row (an importance matrix), all >= 0; empty:
  // none. REQUIRES: row.size() is a multiple of format.block_elems; all values are finite;
  // blocks.size() == row_bytes(format, row.size()).
  void (*quantize)(std::span<const float> row, std::span<const float> importance, std::span<std::byte> blocks);
};

extern const Quantizer* const kQuantizers[];            // every quantizer, ended by nullptr
const Quantizer* find_quantizer(const Format& format);  // nullptr: files of this format cannot be made

}  // namespace zinc
