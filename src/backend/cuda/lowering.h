// From a graph to kernel launches, for steps of up to so many tokens and outputs: one function per op, found in a table.
// Decides everything a step would otherwise have to: which kernel, which grid, what is fused.
#pragma once

#include <vector>

#include "backend/cuda/room.h"

namespace zinc::cuda {

struct StepClass {
  int max_tokens = 1, max_outputs = 1;
};

class Lowering {
 public:
  Lowering(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, Device& device, const Room& room,
           StepClass sizes)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), room_(room), sizes_(sizes) {}

  Result<std::vector<Launch>> run();

 private:
  using Lower = Status (Lowering::*)(int node);
  static Lower find(Op op);

  Status lower_embed(int i);
  Status lower_nothing(int i);
  Status lower_linear(int i);
  Status lower_norm(int i);
  Status lower_rope(int i);
  Status lower_attention(int i);
  Status lower_gated_act(int i);
  Status lower_moe_route(int i);
  Status lower_moe_linear(int i);
  Status lower_moe_combine(int i);
  Status lower_short_conv(int i);
  Status lower_delta_net(int i);
  Status lower_elementwise(int i);
  Status lower_slice(int i);
  Status lower_concat(int i);
  Status lower_rows(int i);
  Status lower_sample(int i);

  Status lower_rope_tables();
  Status lower_product(simt::LinearParams params, const DeviceMatrix& matrix, int n_rows, bool is_one_by_one);
  Result<simt::Rounded> rounded(Value v, const DeviceMatrix& matrix);
  template <class P>
  Status emit(const KernelProgram& program, const char* kernel, const P& params, int64_t x, int64_t y = 1,
              int64_t z = 1, size_t shared_bytes = 0);
  // One thread, or one warp, each.
  template <class P>
  Status emit_threads(const char* file, const char* kernel, const P& params, int64_t n_threads);
  template <class P>
  Status emit_warps(const char* file, const char* kernel, const P& params, int64_t n_warps);

  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  const int* n_rows(Value v) const {
    return room_.step().counts + (info(v).rows == Rows::outputs ? simt::kOutputs : simt::kTokens);
  }
  const float* vector(Value v) const { return v ? weights_.vector(info(v).name) : nullptr; }

  const Graph& graph_;
  const CudaWeights& weights_;
  const CudaCache& cache_;
  Device& device_;
  const Room& room_;
  StepClass sizes_;
  std::vector<Launch> launches_;
  std::vector<const RoundedForm*> made_;  // forms written so far
  std::vector<bool> is_done_;             // per node: fused into one before it
};

}  // namespace zinc::cuda
