// Parts of weights for one of several devices: some rows of a matrix, or some columns of every row, in whole blocks of
// its format. One range of rows is a view into the file; everything else is copied, into memory that is reserved here,
// written by fill() and returned by release().
#pragma once

#include <map>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "graph/graph.h"
#include "graph/index_ranges.h"

namespace zinc {

class WeightSlices {
 public:
  // The shape of a vector is one row, that of stacked experts [experts, rows, columns]: the same slice of each expert.
  // Fails if a range of columns does not begin and end with a block.
  Result<TensorView> slice(const ValueInfo& weight, const IndexRanges& rows, const IndexRanges& columns);
  void fill();
  // Frees the copy that has these bytes; no effect if it is not a copy.
  void release(std::span<const std::byte> bytes);

 private:
  struct Copy {
    TensorView from;
    IndexRanges rows, columns;
    AlignedBuffer to;
    void fill() const;
  };
  std::map<const std::byte*, Copy> copies_;  // by their first byte
};

}  // namespace zinc
