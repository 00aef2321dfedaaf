// A non-owning view of a weight: format, shape, bytes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/format.h"

namespace zinc {

// Up to four dimensions, outermost first: a matrix of 4096 rows of 1024 is {4096, 1024}. (GGUF stores the reverse.)
class Shape {
 public:
  static constexpr int kMaxDims = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int n_dims() const { return n_dims_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t inner() const { return n_dims_ == 0 ? 1 : dims_[static_cast<size_t>(n_dims_ - 1)]; }  // length of a row
  int64_t elems() const;
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[4096,1024]"

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int n_dims_ = 0;
};

struct TensorView {
  const Format* format = nullptr;
  Shape shape;
  std::span<const std::byte> bytes;
};

}  // namespace zinc
