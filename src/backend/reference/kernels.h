// Kernels of the reference interpreter: one function per op, plain float32 loops that define the op. All other backends
// are compared with them, so the code is kept simple; each weight row is dequantized when it is used.
// Determinism: every output element is computed by one thread in a fixed order, independent of the rest of the step.
#pragma once

#include <span>
#include <vector>

#include "backend/reference/reference_cache.h"
#include "backend/step.h"
#include "base/thread_pool.h"
#include "graph/graph.h"

namespace zinc::reference {

// The state of a running step, for kernels.
struct StepState {
  const Graph& graph;
  const StepInputs& inputs;
  ReferenceCache& cache;
  ThreadPool& threads;
  std::span<float* const> data;           // per value: its elements, row-major; nullptr for weights
  std::span<const int32_t> seq_of_token;  // [T]

  int n_rows(Value v) const;  // rows of an activation in this step
  size_t width(Value v) const { return static_cast<size_t>(graph.info(v).shape.elems()); }
  std::span<float> f32(Value v) const;    // all rows. REQUIRES: an f32 activation
  std::span<int32_t> i32(Value v) const;  // all rows. REQUIRES: an i32 activation
  std::span<float> row(Value v, int r) const;
};

using Kernel = void (*)(const Node&, const StepState&);
Kernel find_kernel(Op op);

// Dequantizes row `r` of a weight (its innermost dimension); a whole small weight.
void dequantize_row(const TensorView& weight, int64_t r, std::span<float> out);
std::vector<float> dequantize_all(const TensorView& weight);
float dot(std::span<const float> a, std::span<const float> b);

// The kernel of op `name` is run_name().
#define OP(name) void run_##name(const Node&, const StepState&);
#include "graph/op_list.h"
#undef OP

}  // namespace zinc::reference
