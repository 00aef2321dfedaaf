// Lowers the fused calls of a step (gpu/fused_call.h) to launches of simt kernels: one function per kind, in files by
// family. Chooses kernels, grids and shared memory, so that a step only replays the launches. Needs no GPU, only its
// limits.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/gpu/step_lowering.h"
#include "backend/simt/host/gemm_small_shape.h"
#include "backend/simt/host/gemv_schedule.h"
#include "backend/simt/host/workspace.h"

namespace zinc::simt::host {

// Steps of few rows with dependent launch: chooses the shared memory of each call so that blocks of two consecutive
// launches fit on an SM, and not two of the same launch.
void place_shared_memory(std::span<KernelCall> calls, const DeviceLimits& device);

struct SimtKernels {  // for gpu::StepLowering
  using Workspace = host::Workspace;
  using Norm = simt::NormParams;
  using Rope = simt::RopeParams;
  using GatedAct = simt::GatedActParams;
  using Elementwise = simt::ElementwiseParams;
  using Copy = simt::CopyParams;
  using Combine = simt::CombineParams;
  static simt::Matrix matrix(const DeviceMatrix& matrix) { return simt_matrix(matrix); }
};

class Lowering final : public gpu::StepLowering<Lowering, SimtKernels> {
 public:
  Lowering(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const DeviceLimits& device,
           const Workspace& workspace)
      : StepLowering(graph, weights, cache, workspace), device_(device) {}

  Result<std::vector<KernelCall>> run();

 private:
  friend class gpu::StepLowering<Lowering, SimtKernels>;
  const std::string& device_name() const { return device_.name; }
  using StepLowering::lower;
  Status lower(const gpu::EmbedCall& call);
  Status lower(const gpu::QuantizeCall& call);
  Status lower(const gpu::GatedActPairCall& call);
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
  Status lower(const gpu::DeltaLayerCall& call);
  Status lower_rope_tables();

  simt::DeltaParams delta_params(const Node& n) const;
  simt::ConvParams conv_params(const Node& n) const;
  simt::DeltaLayerParams layer_params(const gpu::DeltaDecodeCall& call) const;
  bool can_scan_chunks(const simt::DeltaParams& params) const;
  Status lower_delta_chunks(const simt::DeltaParams& params);
  Status lower_delta_finish(const gpu::DeltaLayerCall& call, const simt::ConvParams& conv);

  struct GemvLaunch;
  struct GemvPrologue;
  struct GemvRouting {
    std::string type;
    simt::StoredRouting params;
    int n_experts, n_logits;
  };
  Status lower_gemv(const gpu::MatmulCall& call);
  Status lower_gemv_experts(const gpu::MatmulCall& call);
  GemvSchedule schedule(const GemvWork& work) const;
  template <class Params>
  Status emit_gemv(const GemvLaunch& gemv, const Params& params);
  GemvPrologue gemv_prologue(const gpu::MatmulCall& call) const;
  static std::string gemv_epilogue(const gpu::MatmulCall& call);
  int gemv_n_out(const gpu::MatmulCall& call, size_t i) const;
  float* gemv_out(const gpu::MatmulCall& call, size_t i) const;
  template <class Part>
  Part gemv_part(const gpu::MatmulCall& call, size_t i, int n_panels) const;
  GemvRouting gemv_routing(const Node& route, int n_used) const;

  simt::LinearParams linear_params(const gpu::MatmulCall& call) const;
  Status lower_simt_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows);
  Status lower_tensor_cores(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows);
  Status lower_gemm_small(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows);
  bool runs_gemm_small_wgmma(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows) const;
  Status lower_gemm_small_wgmma(const gpu::MatmulCall& call, const simt::LinearParams& params, int n_rows);
  Status lower_float_gemm(const gpu::MatmulCall& call, simt::LinearParams params, int n_rows);
  simt::Q8Activation q8_buffers(const gpu::QuantizedActivation& activation, Value v) const;
  template <class Params>
  void fill_q8(const gpu::QuantizedActivation& activation, Value v, Params& params) const {
    params.q8 = q8_buffers(activation, v);
    if constexpr (requires { params.q8_block; }) params.q8_block = activation.block;
  }
  template <class Params>
  void fill_rope(const Node& rope, Params& params) const {
    const RopeTable& table = workspace_.rope_table(rope);
    params.table = table.table.device_ptr<const float>();
    params.n_pairs = table.n_pairs;
    params.adjacent = is_adjacent(rope);
  }

  Status lower_attention_inputs(const gpu::AttentionCall& call, const simt::KvLayer& kv);
  bool has_split_rows() const { return !workspace_.layout().attention.empty(); }
  template <class Call>
  void fill_output_gate(const Call& call, simt::AttentionParams& params) const;
  Status lower_units_mma(const simt::AttentionParams& params, int max_units);
  Status lower_units_f32(simt::AttentionParams params, int max_units);
  Status lower_prefill_f32(simt::AttentionParams params);
  Status lower_prefill_mma(simt::AttentionParams params, int n_warps);
  // Of an attention file, compiled for the KV cache format.
  KernelProgram kv_program(std::string file, std::string shape = "") const;
  simt::AttentionParams attention_params(const Node& n) const;

  Status add(const KernelProgram& program, const char* kernel, Launch launch, int64_t x, int64_t y, int64_t z,
             size_t shared_bytes);
  template <class P>
  Status emit(const KernelProgram& program, const char* kernel, const P& params, int64_t x, int64_t y = 1,
              int64_t z = 1, size_t shared_bytes = 0) {
    return add(program, kernel, Launch::of(params), x, y, z, shared_bytes);
  }
  // Kernels that work row by row. A launch waits for the one before, so that it needs no accesses.
  template <class P>
  Status emit_threads(const char* kernel, const P& params, int64_t n_threads, const gpu::Accesses& = {}) {
    return emit({"row_ops", ""}, kernel, params, ceil_div(n_threads, simt::kThreads));
  }
  template <class P>
  Status emit_warps(const char* kernel, const P& params, int64_t n_warps, const gpu::Accesses& = {}) {
    return emit({"row_ops", ""}, kernel, params, ceil_div(n_warps, simt::kWarps));
  }
  Status emit_norm(NormKind kind, simt::NormParams& params, int64_t n_vectors, const gpu::Accesses& accesses);
  Status emit_copy(const gpu::RowCopy& copy, simt::CopyParams& params, int64_t n_elems, const gpu::Accesses& accesses);

  const int* n_rows(Value v) const {
    return workspace_.step().counts + (info(v).rows == Rows::outputs ? simt::kOutputs : simt::kTokens);
  }
  bool is_small(Value v, int64_t vectors_per_row) const {
    return max_rows(v) * vectors_per_row <= gpu::kMaxSplitTokens;
  }
  bool runs_gemm_small() const { return host::runs_gemm_small(device_, sizes_.max_tokens); }
  // Larger steps run it for experts with few pairs each.
  bool runs_gemm_small_experts(int64_t n_pairs, int64_t n_experts) const {
    constexpr int kMaxColumns = 32;
    return runs_gemm_small() || (may_run_gemm_small_experts(device_, sizes_.max_tokens) &&
                                 gemm_small_expert_columns(n_pairs, n_experts) <= kMaxColumns);
  }
  // N of a GEMM tile on tensor cores; that of experts has pairs of one expert.
  int gemm_tile_tokens() const { return device_.has_wgmma() ? simt::kWgmmaTokens : simt::kTileTokens; }
  int expert_tile_tokens(int64_t n_pairs, int64_t n_experts) const {
    return runs_gemm_small_experts(n_pairs, n_experts) ? gemm_small_expert_columns(n_pairs, n_experts)
                                                       : gemm_tile_tokens();
  }
  bool is_decode() const { return sizes_.max_tokens == 1 && workspace_.has_decode_kernels(); }
  // Steps whose matmuls run as gemv.
  bool has_few_rows() const { return workspace_.has_decode_kernels(); }
  // Grid size of a decode launch. With PDL each SM holds blocks of two launches: one works, one waits with its weights
  // prefetched. A launch that leaves an SM empty, or fills it alone, misplaces the blocks of the next launch; so blocks
  // without work are launched too.
  int64_t one_per_sm(int64_t n_blocks) const { return std::max<int64_t>(n_blocks, device_.n_sms); }

  const DeviceLimits& device_;
  std::vector<KernelCall> calls_;
  // The last launch, if it triggers its dependents only after its own PDL wait: the next launch may then read the
  // results of all earlier launches before waiting, but not those of this one.
  struct LateTrigger {
    std::vector<std::span<const float>> written;
    const int* routed_ids = nullptr;  // the expert ids it computes itself from the router logits
    void add(const float* row, int n) { written.emplace_back(row, static_cast<size_t>(n)); }
    bool writes_to(const float* row, int n) const;
  };
  std::optional<LateTrigger> late_trigger_;
};

}  // namespace zinc::simt::host
