// Lowers the fused calls of a step (gpu/fused_call.h) to CUDA launches: one function per kind, in files by family.
// Chooses kernels, grids and shared memory, so that a step only replays the launches. Needs no GPU, only its limits.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/workspace.h"
#include "backend/gpu/kernel_times.h"
#include "backend/step_kernels.h"
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
  Status lower(const gpu::EmbedCall& call);
  Status lower(const gpu::CopyCall& call);
  Status lower(const gpu::NormCall& call);
  Status lower(const gpu::QuantizeCall& call);
  Status lower(const gpu::RopeCall& call);
  Status lower(const gpu::GatedActCall& call);
  Status lower(const gpu::ElementwiseCall& call);
  Status lower(const gpu::RouteCall& call);
  Status lower(const gpu::CombineCall& call);
  Status lower(const gpu::ShortConvCall& call);
  Status lower(const gpu::DeltaNetCall& call);
  Status lower(const gpu::SampleCall& call);
  Status lower(const gpu::AttentionCall& call);
  Status lower(const gpu::AttentionDecodeCall& call);
  Status lower(const gpu::NormResidualCall& call);
  Status lower(const gpu::MatmulCall& call);
  Status lower(const gpu::MoeDownCall& call);
  Status lower(const gpu::DeltaDecodeCall& call);
  Status lower_rope_tables();

  simt::DeltaParams delta_params(const Node& n) const;
  Status check_delta(const simt::DeltaParams& params) const;
  simt::ConvParams conv_params(const Node& n) const;
  Status lower_delta_chunks(simt::DeltaParams params, const char* scan_kernel);

  struct GemvLaunch;
  bool is_gemv(const gpu::MatmulCall& call) const;
  Status lower_gemv(const gpu::MatmulCall& call);
  Status emit_gemv(GemvLaunch& launch);
  simt::GemvPart gemv_part(const gpu::MatmulCall& call, size_t i) const;
  void fill_input(const gpu::MatmulCall& call, GemvLaunch& launch) const;
  void fill_routing(const Node& route, GemvLaunch& launch) const;
  void fill_experts(const gpu::MatmulCall& call, GemvLaunch& launch) const;

  simt::LinearParams linear_params(const gpu::MatmulCall& call) const;
  Status lower_cuda_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows);
  Status lower_tensor_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows);
  Status lower_float_gemm(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows);
  simt::Q8Activation q8_buffers(const gpu::QuantizedActivation& activation, Value v) const;
  // Where a producer writes its result.
  template <class Params>
  void fill_output(const gpu::Output& out, Params& params) const {
    params.out = out.has_floats ? workspace_.floats(out.value) : nullptr;
    if (!out.q8) return;
    params.q8 = q8_buffers(*out.q8, out.value);
    params.q8_block = out.q8->block;
  }

  Status lower_attention_inputs(const gpu::AttentionCall& call, const simt::KvLayer& kv);
  Status lower_attend_f32(simt::AttentionParams& params);
  Status lower_attend_mma(simt::AttentionParams params, int n_warps);
  KernelProgram kv_program(std::string file) const;  // of an attention file, compiled for the KV cache format
  simt::AttentionParams attention_params(const Node& n) const;
  const float* slice_of(const gpu::AttentionInput& input) const {
    return workspace_.floats(input.x) + (input.slice ? input.slice->as<SliceParams>().begin : 0);
  }
  simt::HeadInput head_input(const gpu::AttentionInput& input, Value heads) const;

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

  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  const int* n_rows(Value v) const {
    return workspace_.step().counts + (info(v).rows == Rows::outputs ? simt::kOutputs : simt::kTokens);
  }
  const DeviceMatrix& matrix_of(const Node& n) const { return *weights_.matrix(info(n.in[1]).name); }
  bool is_small(Value v, int64_t vectors_per_row) const {
    return max_rows(v) * vectors_per_row <= gpu::kMaxSplitTokens;
  }
  // N of a GEMM tile on tensor cores.
  int gemm_tile_tokens() const { return device_.has_wgmma() ? simt::kWgmmaTokens : simt::kTileTokens; }
  bool is_decode() const { return sizes_.max_tokens == 1 && has_decode_kernels(device_); }
  // Grid size of a decode launch. With PDL each SM holds blocks of two launches: one works, one waits with its weights
  // prefetched. A launch that leaves an SM empty, or fills it alone, misplaces the blocks of the next launch; so blocks
  // without work are launched too.
  int64_t one_per_sm(int64_t n_blocks) const { return std::max<int64_t>(n_blocks, device_.n_sms); }
  const float* vector(Value v) const {
    return v ? reinterpret_cast<const float*>(weights_.vector(info(v).name)) : nullptr;
  }
  // An activation that may be absent.
  const float* optional_floats(Value v) const { return v ? workspace_.floats(v) : nullptr; }

  const Graph& graph_;
  const gpu::Weights& weights_;
  const gpu::Cache& cache_;
  const DeviceLimits& device_;
  const Workspace& workspace_;
  gpu::StepClass sizes_;
  std::vector<KernelCall> calls_;
  const gpu::FusedCall* current_ = nullptr;  // being lowered
  // The last launch, if it triggers its dependents only after its own PDL wait: the next launch may then read the
  // results of all earlier launches before waiting, but not those of this one.
  struct LateTrigger {
    std::vector<std::span<const float>> written;
    const int* routed_ids;  // the expert ids it computes itself from the router logits
    bool writes_to(std::span<const float> row) const;
  };
  std::optional<LateTrigger> late_trigger_;
};

// The kernels of a step on a GPU that need not be present (BackendInfo::step_kernels).
Result<StepKernels> step_kernels(std::string_view gpu, const Graph& graph, const BatchShape& step);

}  // namespace zinc::cuda
