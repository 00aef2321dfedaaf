#include "backend/reference/kernels.h"

#include <array>

namespace zinc::reference {

Kernel find_kernel(Op op) {
  static constexpr std::array<Kernel, kOpCount> kKernels = {
#define OP(name) run_##name,
#include "graph/op_list.h"
#undef OP
  };
  return kKernels[static_cast<size_t>(op)];
}

int StepState::n_rows(Value v) const {
  const Rows rows = graph.info(v).rows;
  ZINC_DCHECK(rows != Rows::none);
  return static_cast<int>(rows == Rows::outputs ? inputs.output_rows.size() : inputs.tokens.size());
}

std::span<float> StepState::f32(Value v) const {
  return {data[static_cast<size_t>(v.id)], static_cast<size_t>(n_rows(v)) * width(v)};
}

std::span<int32_t> StepState::i32(Value v) const {
  return {reinterpret_cast<int32_t*>(data[static_cast<size_t>(v.id)]), static_cast<size_t>(n_rows(v)) * width(v)};
}

std::span<float> StepState::row(Value v, int r) const {
  const size_t n = width(v);
  return {data[static_cast<size_t>(v.id)] + static_cast<size_t>(r) * n, n};
}

void dequantize_row(const TensorView& weight, int64_t r, std::span<float> out) {
  const size_t n_bytes = row_bytes(*weight.format, static_cast<size_t>(weight.shape.inner()));
  weight.format->dequantize(weight.bytes.subspan(static_cast<size_t>(r) * n_bytes, n_bytes), out);
}

std::vector<float> dequantize_all(const TensorView& weight) {
  std::vector<float> out(static_cast<size_t>(weight.shape.elems()));
  weight.format->dequantize(weight.bytes, out);
  return out;
}

// Sixteen partial sums in a fixed order: the compiler may vectorize up to that width without changing the result.
float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  const size_t n_whole = a.size() / kLanes * kLanes;
  for (size_t i = 0; i < n_whole; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (size_t i = n_whole; i < a.size(); ++i) sums[i - n_whole] += a[i] * b[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

}  // namespace zinc::reference
