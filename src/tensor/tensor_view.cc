#include "tensor/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace zinc {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : n_dims_(static_cast<int>(dims.size())) {
  ZINC_CHECK(dims.size() <= kMaxDims);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::elems() const {
  int64_t product = 1;
  for (int i = 0; i < n_dims_; ++i) product *= dims_[static_cast<size_t>(i)];
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims_.begin(), dims_.begin() + n_dims_, ","));
}

}  // namespace zinc
