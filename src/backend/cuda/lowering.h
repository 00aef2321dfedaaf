// Lowers a graph to kernel calls for one class of step sizes: one function per op, looked up in a table, in files by op
// family. Chooses kernels, grids and fusion, so that a step only replays the launches. Needs no GPU, only its limits.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/workspace.h"
#include "backend/gpu/step_class.h"
#include "base/ceil_div.h"

namespace zinc::cuda {

// Batch-1 decode: chooses the shared memory of each call so that blocks of two consecutive launches fit on an SM, and
// not two of the same launch.
void place_shared_memory(std::span<KernelCall> calls, int n_sms);

class Lowering {
 public:
  Lowering(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const DeviceLimits& device,
           const Workspace& workspace, gpu::StepClass sizes)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), workspace_(workspace), sizes_(sizes) {}

  Result<std::vector<KernelCall>> run();

 private:
  Status lower_all();
  using Lower = Status (Lowering::*)(int node);
  static Lower find(Op op);

  Status lower_embed(int i);
  Status lower_hidden_in(int i);
  Status lower_nothing(int i);
  Status lower_norm(int i);
  Status lower_rope(int i);
  Status lower_attention(int i);
  Status lower_gated_act(int i);
  Status lower_moe_route(int i);
  Status lower_moe_combine(int i);
  Status lower_short_conv(int i);
  Status lower_delta_net(int i);
  Status lower_elementwise(int i);
  Status lower_slice(int i);
  Status lower_concat(int i);
  Status lower_rows(int i);
  Status lower_sample(int i);

  Status lower_rope_tables();
  Status lower_matmuls(const MatmulGroup& group);
  Status lower_same_format(const MatmulGroup& group);  // REQUIRES: all matrices have the same format
  bool is_gemv(const MatmulGroup& group) const;
  Status lower_decode_matmuls(const MatmulGroup& group);
  Status lower_moe_down_combine(const MoeDownCombine& moe);
  Status lower_delta_decode(const DeltaGroup& group);
  Status lower_norm_residual(const NormResidual& group);
  simt::DeltaParams delta_params(const Node& n) const;
  Status check_delta(const simt::DeltaParams& params) const;
  simt::ConvParams conv_params(const Node& n) const;
  struct GemvLaunch;
  Status emit_gemv(GemvLaunch& launch);
  simt::GemvPart gemv_part(const MatmulGroup& group, size_t i) const;
  bool is_split_k(int i) const;  // its reader adds up the partial sums of the K segments
  void fill_input(const MatmulGroup& group, GemvLaunch& launch) const;
  void fill_norm_residual(const MatmulGroup& group, GemvLaunch& launch) const;
  simt::Q8Activation produced_q8(Value x, const DeviceMatrix& matrix) const;
  simt::Q8Activation q8_buffers(const QuantizedActivation& activation, Value v) const;
  void fill_routing(int route, GemvLaunch& launch) const;
  const MatmulGroup* find_joinable_router(const MatmulGroup& gate) const;  // nullptr: none
  void join_router(const MatmulGroup& gate, GemvLaunch& launch);
  const float* other_operand(int add, Value result) const;
  Status fill_inputs(const MatmulGroup& group, bool is_small, simt::LinearParams& params);
  void fill_parts(const MatmulGroup& group, simt::LinearParams& params) const;
  Status lower_cuda_cores(const MatmulGroup& group, simt::LinearParams params, int n_rows);
  Status lower_tensor_cores(const MatmulGroup& group, simt::LinearParams params, int n_rows);
  Status lower_float_gemm(const simt::LinearParams& params, const DeviceMatrix& matrix, int n_rows);
  Result<simt::Q8Activation> quantized(Value v, const DeviceMatrix& matrix);
  // The buffers that the producer of a value writes: floats, q8 or both; only q8 if no node reads the floats.
  struct OutputBuffers {
    float* floats = nullptr;
    simt::Q8Activation q8{};
    int block = 0;
  };
  OutputBuffers output_buffers(Value v, int64_t n_in);
  Status lower_attention_inputs(const AttentionGroup& group, const simt::KvLayer& kv);
  Status lower_attend_f32(simt::AttentionParams& params);
  Status lower_attend_mma(simt::AttentionParams params, int n_warps);
  Status lower_delta_chunks(simt::DeltaParams params, const char* scan_kernel);
  Status lower_attend_decode(const AttentionGroup& group);
  // A program of an attention file, compiled for the KV cache format.
  KernelProgram kv_program(std::string file) const;
  simt::AttentionParams attention_params(const Node& n) const;
  const float* slice_of(const AttentionInput& chain) const { return workspace_.floats(chain.x) + slice_begin(chain); }
  int64_t slice_begin(const AttentionInput& chain) const {
    return chain.slice < 0 ? 0 : node(chain.slice).as<SliceParams>().begin;
  }
  simt::HeadInput head_part(const AttentionInput& chain) const;
  Status add(const KernelProgram& program, const char* kernel, Launch launch, int64_t x, int64_t y, int64_t z,
             size_t shared_bytes);
  template <class P>
  Status emit(const KernelProgram& program, const char* kernel, const P& params, int64_t x, int64_t y = 1,
              int64_t z = 1, size_t shared_bytes = 0) {
    return add(program, kernel, Launch::of(nullptr, params, 1), x, y, z, shared_bytes);
  }
  // One thread, or one warp, per work item.
  template <class P>
  Status emit_threads(const char* file, const char* kernel, const P& params, int64_t n_threads) {
    return emit({file, ""}, kernel, params, ceil_div(n_threads, simt::kThreads));
  }
  template <class P>
  Status emit_warps(const char* file, const char* kernel, const P& params, int64_t n_warps) {
    return emit({file, ""}, kernel, params, ceil_div(n_warps, simt::kWarps));
  }

  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  const int* n_rows(Value v) const {
    return workspace_.step().counts + (info(v).rows == Rows::outputs ? simt::kOutputs : simt::kTokens);
  }
  const DeviceMatrix& matrix_of(int i) const { return *weights_.matrix(info(node(i).in[1]).name); }
  bool is_small(Value v, int64_t vectors_per_row) const {
    return max_rows(v) * vectors_per_row <= gpu::kMaxSplitTokens;
  }
  // N of a GEMM tile on tensor cores.
  int gemm_tile_tokens() const { return device_.has_wgmma() ? simt::kWgmmaTokens : simt::kTileTokens; }
  // Batch-1 decode with the fused gemv kernel and its prologues: needs bulk copies and shared memory for the
  // pipelines of two blocks (data-center Hopper and Blackwell; other GPUs have half the shared memory).
  bool is_decode() const {
    constexpr int kMinSharedBytes = 200 << 10;
    return sizes_.max_tokens == 1 && device_.has_bulk_copies() && device_.max_shared_bytes >= kMinSharedBytes;
  }
  // Grid size of a decode launch. With PDL each SM holds blocks of two launches: one works, one waits with its weights
  // prefetched. A launch that leaves an SM empty, or fills it alone, misplaces the blocks of the next launch; so blocks
  // without work are launched too.
  int64_t one_per_sm(int64_t n_blocks) const { return std::max<int64_t>(n_blocks, device_.n_sms); }
  const float* vector(Value v) const {
    return v ? reinterpret_cast<const float*>(weights_.vector(info(v).name)) : nullptr;
  }

  const Graph& graph_;
  const gpu::Weights& weights_;
  const gpu::Cache& cache_;
  const DeviceLimits& device_;
  const Workspace& workspace_;
  gpu::StepClass sizes_;
  std::vector<KernelCall> calls_;
  int lowered_node_ = -1;  // the node whose calls are being added
  // The last launch, if it triggers its dependents only after its own PDL wait: the next launch may then read the
  // results of all earlier launches before waiting, but not those of this one.
  struct LateTrigger {
    std::vector<std::span<const float>> written;
    const int* routed_ids;  // the expert ids it computes itself from the router logits
    bool writes_to(std::span<const float> row) const;
  };
  std::optional<LateTrigger> late_trigger_;
  const MatmulGroup* joined_router_ = nullptr;  // already launched with an earlier gate; until its experts are routed
  std::vector<const QuantizedActivation*> quantized_written_;  // written so far
};

}  // namespace zinc::cuda
