// One tensor of the GGUF file, described by where its elements come from: a matrix of the checkpoint, several stacked
// (experts), or computed values. Rows are read a few at a time, so that memory does not grow with the tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/checkpoint.h"
#include "tensor/tensor_view.h"

namespace zinc {

// A tensor of the checkpoint as matrices of rows: the dimensions before the last two are flattened.
struct SourceMatrix {
  const CheckpointTensor* tensor = nullptr;
  const CheckpointTensor* scale = nullptr;  // of FP8: one factor per block, nullptr: none
  int64_t block_rows = 0, block_columns = 0;
  bool transposed = false;  // the rows of the output are columns of each matrix
};

enum class TensorContents : uint8_t {
  floats,  // of sources
  mxfp4,   // blocks and scales of sources[0] and sources[1], in the order of GGUF's blocks
  values,  // computed
};

struct OutputTensor {
  std::string name;
  Shape shape;
  const Format* format = nullptr;
  TensorContents contents = TensorContents::floats;
  std::vector<SourceMatrix> sources = {};  // stacked, of one shape
  // The source row (column) of each row (column) of the output; empty: the same. Rows count over all stacked sources.
  std::vector<int64_t> rows = {}, columns = {};
  void (*transform)(std::span<float>) = nullptr;  // of each element, after it was read
  std::vector<float> values = {};

  int64_t n_rows() const { return shape.elems() / shape.inner(); }
};

// Reads rows as floats. REQUIRES: contents are not mxfp4; out.size() == n * shape.inner().
void read_rows(const OutputTensor& tensor, int64_t first, int64_t n, std::span<float> out);
// Reads rows as the blocks of tensor.format. `scratch` is reused between calls.
void encode_rows(const OutputTensor& tensor, int64_t first, int64_t n, std::vector<float>& scratch,
                 std::span<std::byte> out);

}  // namespace zinc
