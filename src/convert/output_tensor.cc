#include "convert/output_tensor.h"

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "base/check.h"

namespace zinc {
namespace {

// Rows and columns of a source as they are read, transposed or not.
struct SourceDims {
  int64_t rows, columns;  // of one matrix
};

SourceDims dims_of(const SourceMatrix& source) {
  const std::vector<int64_t>& shape = source.tensor->tensor.shape;
  const int64_t columns = shape.empty() ? 1 : shape.back();
  const int64_t rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
  return source.transposed ? SourceDims{columns, rows} : SourceDims{rows, columns};
}

int64_t n_rows_of(const SourceMatrix& source) {
  int64_t n_elems = 1;
  for (const int64_t length : source.tensor->tensor.shape) n_elems *= length;
  const int64_t columns = dims_of(source).columns;
  return columns == 0 ? 0 : n_elems / columns;
}

std::span<const std::byte> elements(const CheckpointTensor& tensor, int64_t first, int64_t n) {
  const size_t n_bytes = tensor.tensor.type->n_bytes;
  return tensor.tensor.bytes.subspan(static_cast<size_t>(first) * n_bytes, static_cast<size_t>(n) * n_bytes);
}

// Multiplies one row by the factors of its blocks. `row` counts over all matrices of the source.
void apply_scales(const SourceMatrix& source, int64_t row, std::span<float> out) {
  const SourceDims dims = dims_of(source);
  const int64_t row_blocks = ceil_div(dims.rows, source.block_rows);
  const auto n_columns = static_cast<int64_t>(out.size());
  const int64_t column_blocks = ceil_div(n_columns, source.block_columns);
  const int64_t scale_row = row / dims.rows * row_blocks + row % dims.rows / source.block_rows;
  const CheckpointTensor& scale = *source.scale;
  for (int64_t block = 0; block < column_blocks; ++block) {
    float factor = 1;
    scale.tensor.type->to_float(elements(scale, scale_row * column_blocks + block, 1), std::span(&factor, 1));
    const int64_t begin = block * source.block_columns;
    const int64_t end = std::min(n_columns, begin + source.block_columns);
    for (int64_t c = begin; c < end; ++c) out[static_cast<size_t>(c)] *= factor;
  }
}

void read_source_row(const SourceMatrix& source, int64_t row, std::span<float> out) {
  const CheckpointTensor& tensor = *source.tensor;
  const auto n_columns = static_cast<int64_t>(out.size());
  if (!source.transposed) {
    tensor.tensor.type->to_float(elements(tensor, row * n_columns, n_columns), out);
  } else {
    const SourceDims dims = dims_of(source);
    const int64_t first = row / dims.rows * dims.rows * n_columns + row % dims.rows;
    for (int64_t c = 0; c < n_columns; ++c) {
      tensor.tensor.type->to_float(elements(tensor, first + c * dims.rows, 1), out.subspan(static_cast<size_t>(c), 1));
    }
  }
  if (source.scale) apply_scales(source, row, out);
}

// A row of 32 x n elements: n blocks of an exponent and 16 bytes. The checkpoint packs neighbors into a byte, GGUF
// packs elements i and i + 16.
void repack_mxfp4_row(std::span<const std::byte> packed, std::span<const std::byte> scales, std::span<std::byte> out) {
  constexpr size_t kPacked = 16;
  for (size_t block = 0; block < scales.size(); ++block) {
    const std::span<const std::byte> from = packed.subspan(block * kPacked, kPacked);
    const std::span<std::byte> to = out.subspan(block * (kPacked + 1), kPacked + 1);
    const auto element = [from](size_t i) { return (i % 2 == 0 ? from[i / 2] : from[i / 2] >> 4) & std::byte{0xF}; };
    to[0] = scales[block];
    for (size_t i = 0; i < kPacked; ++i) to[i + 1] = element(i) | element(i + kPacked) << 4;
  }
}

int64_t source_row_of(const OutputTensor& tensor, int64_t row) {
  return tensor.rows.empty() ? row : tensor.rows[static_cast<size_t>(row)];
}

void encode_mxfp4(const OutputTensor& tensor, int64_t first, int64_t n, std::span<std::byte> out) {
  constexpr int64_t kBlockElems = 32, kPacked = 16;
  const int64_t n_blocks = tensor.shape.inner() / kBlockElems;
  const size_t n_row_bytes = out.size() / static_cast<size_t>(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = source_row_of(tensor, first + i);
    repack_mxfp4_row(elements(*tensor.sources[0].tensor, row * n_blocks * kPacked, n_blocks * kPacked),
                     elements(*tensor.sources[1].tensor, row * n_blocks, n_blocks),
                     out.subspan(static_cast<size_t>(i) * n_row_bytes, n_row_bytes));
  }
}

// The checkpoint's own bytes, if they need no change.
std::span<const std::byte> unchanged_rows(const OutputTensor& tensor, int64_t first, int64_t n) {
  const bool is_plain = tensor.contents == TensorContents::floats && tensor.sources.size() == 1 &&
                        tensor.rows.empty() && tensor.columns.empty() && !tensor.transform &&
                        !tensor.sources[0].transposed && !tensor.sources[0].scale;
  if (!is_plain || tensor.sources[0].tensor->tensor.type->format != tensor.format) return {};
  return elements(*tensor.sources[0].tensor, first * tensor.shape.inner(), n * tensor.shape.inner());
}

}  // namespace

void read_rows(const OutputTensor& tensor, int64_t first, int64_t n, std::span<float> out) {
  const auto n_columns = static_cast<size_t>(tensor.shape.inner());
  if (tensor.contents == TensorContents::values) {
    std::copy_n(tensor.values.begin() + first * tensor.shape.inner(), out.size(), out.begin());
    return;
  }
  ZINC_CHECK(tensor.contents == TensorContents::floats);
  const int64_t n_source_rows = n_rows_of(tensor.sources[0]);
  std::vector<float> source_row(static_cast<size_t>(dims_of(tensor.sources[0]).columns));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = source_row_of(tensor, first + i);
    const SourceMatrix& source = tensor.sources[static_cast<size_t>(row / n_source_rows)];
    const std::span<float> to = out.subspan(static_cast<size_t>(i) * n_columns, n_columns);
    if (tensor.columns.empty()) {
      read_source_row(source, row % n_source_rows, to);
    } else {
      read_source_row(source, row % n_source_rows, source_row);
      for (size_t c = 0; c < n_columns; ++c) to[c] = source_row[static_cast<size_t>(tensor.columns[c])];
    }
  }
  if (tensor.transform) tensor.transform(out);
}

void encode_rows(const OutputTensor& tensor, int64_t first, int64_t n, std::vector<float>& scratch,
                 std::span<std::byte> out) {
  if (tensor.contents == TensorContents::mxfp4) return encode_mxfp4(tensor, first, n, out);
  if (const std::span<const std::byte> bytes = unchanged_rows(tensor, first, n); !bytes.empty()) {
    std::ranges::copy(bytes, out.begin());
    return;
  }
  scratch.resize(static_cast<size_t>(n * tensor.shape.inner()));
  read_rows(tensor, first, n, scratch);
  tensor.format->quantize(scratch, out);
}

}  // namespace zinc
