#include "graph/weight_slices.h"

#include <algorithm>
#include <cstring>

namespace zinc {
namespace {

int64_t rows_of(const Shape& shape) { return shape.n_dims() < 2 ? 1 : shape[shape.n_dims() - 2]; }

Shape sliced_shape(const Shape& shape, int64_t n_rows, int64_t n_columns) {
  if (shape.n_dims() < 2) return {n_columns};
  return shape.n_dims() == 2 ? Shape{n_rows, n_columns} : Shape{shape[0], n_rows, n_columns};
}

}  // namespace

Result<TensorView> WeightSlices::slice(const ValueInfo& weight, const IndexRanges& rows, const IndexRanges& columns) {
  const TensorView& from = weight.weight;
  const Shape& shape = weight.shape;
  const bool has_all_rows = rows.is_all(rows_of(shape)), has_all_columns = columns.is_all(shape.inner());
  if (has_all_rows && has_all_columns) return from;
  for (const IndexRange& range : columns.ranges()) {
    if (range.begin % from.format->block_elems == 0 && range.end % from.format->block_elems == 0) continue;
    return fail(ErrorCode::unsupported, "tensor '{}' cannot be divided at column {}: its format {} has blocks of {}",
                weight.name, range.begin, from.format->name, from.format->block_elems);
  }
  TensorView to{from.format, sliced_shape(shape, rows.size(), columns.size()), {}};
  const size_t n_bytes = row_bytes(*from.format, static_cast<size_t>(to.shape.elems()));
  const bool is_vector = rows_of(shape) == 1 && shape.n_dims() < 3;
  if (shape.n_dims() < 3 && (is_vector ? columns : rows).ranges().size() == 1 && (is_vector || has_all_columns)) {
    const int64_t first = is_vector ? columns.ranges()[0].begin : rows.ranges()[0].begin * shape.inner();
    to.bytes = from.bytes.subspan(row_bytes(*from.format, static_cast<size_t>(first)), n_bytes);
    return to;
  }
  AlignedBuffer buffer = AlignedBuffer::allocate(n_bytes);
  if (buffer.size() != n_bytes) {
    return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for a part of tensor '{}'", n_bytes,
                weight.name);
  }
  to.bytes = buffer.bytes();
  copies_.emplace(to.bytes.data(), Copy{from, rows, columns, std::move(buffer)});
  return to;
}

void WeightSlices::Copy::fill() const {
  const int64_t n_matrix_rows = rows_of(from.shape);
  const int64_t n_experts = from.shape.n_dims() == 3 ? from.shape[0] : 1;
  const auto bytes_of = [&](int64_t n_elems) { return row_bytes(*from.format, static_cast<size_t>(n_elems)); };
  std::byte* at = to.data();
  for (int64_t expert = 0; expert < n_experts; ++expert) {
    for (const IndexRange& some : rows.ranges()) {
      for (int64_t row = some.begin; row < some.end; ++row) {
        const std::byte* const begin =
            from.bytes.data() + bytes_of((expert * n_matrix_rows + row) * from.shape.inner());
        for (const IndexRange& range : columns.ranges()) {
          std::memcpy(at, begin + bytes_of(range.begin), bytes_of(range.size()));
          at += bytes_of(range.size());
        }
      }
    }
  }
}

void WeightSlices::fill() {
  for (const auto& [bytes, copy] : copies_) copy.fill();
}

void WeightSlices::release(std::span<const std::byte> bytes) { copies_.erase(bytes.data()); }

}  // namespace zinc
