// Lowers the fused calls of a step (gpu/fused_call.h) to dispatches: one function per kind. Chooses kernels, grids and
// barriers, so that a step only replays the recorded commands. Needs no device, only its capabilities.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "backend/gpu/step_lowering.h"
#include "backend/step_kernels.h"
#include "backend/vulkan/timestamps.h"
#include "backend/vulkan/workspace.h"

namespace zinc::vulkan {

using gpu::Accesses;
using gpu::MemoryRange;

// A kernel of a step as plain data.
struct Dispatch {
  KernelKey kernel;
  uint32_t params_offset = 0;  // in Program::params
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::vector<MemoryRange> reads, writes;
  int n_arrivals = 0;  // workgroups that signal completion to the next dispatches (shader/counter_sync.glsl); 0: none
  bool can_wait = false;                 // for the counters of the dispatches before
  bool needs_barrier = false;            // before the dispatch
  const gpu::FusedCall* call = nullptr;  // of the step
};

struct Program {
  std::vector<Dispatch> dispatches;
  std::vector<std::byte> params;  // of all dispatches
};

// Passes over the dispatches of a program. The first one makes as few barriers necessary as possible: dispatches are
// sorted by the length of the longest chain of dispatches that each has to wait for.
void order_by_depth(std::vector<Dispatch>& dispatches);
// Puts a barrier before each dispatch that reads or writes what an earlier one since the last barrier wrote, or writes
// what it read.
void insert_barriers(std::span<Dispatch> dispatches);
// Dispatches between two barriers are a batch. If all dispatches of a batch count their workgroups and all of the next
// one can wait for that, the barrier between them is replaced: the second batch polls the first batch's counter.
// `counters`: kCounterBytes per batch, which no other program uses; empty: no dispatch counts.
void replace_barriers_by_counters(Program& program, const Buffer& counters);

// Registers of a thread, in eight elements, for a row in the registers of a workgroup; 0: it is too long.
int register_row_vec8s(int width);

struct AttentionSize {
  int k_dim = 0, v_dim = 0;
  std::string_view kv_format = "f16";
  int n_head_segments = 1;  // segments of 256 elements in max(k_dim, v_dim)
  bool is_split = false;    // split-KV, for few tokens
  bool has_units = false;   // split-KV of many sequences: gpu/attention_units.h
  bool is_fused = false;    // decode with norm and RoPE in the same dispatch
};
struct AttentionShape {
  KernelKey key;
  int rows;  // per workgroup; a row is one head of one token
};
// Chooses the kernel and the rows per workgroup, as many as fit shared memory. The kernel is the same for all step
// sizes: results must be bit-identical.
Result<AttentionShape> attention_shape(const Capabilities& device, const AttentionSize& size);

// Whether prefill uses byte planes (shader/gemm_planes.comp): the format supports them, and those of a tile of
// 32 * warp_rows rows fit shared memory. Results are bit-identical either way.
bool has_planes(const Capabilities& device, const PanelFormat& format, int warp_rows);

struct ShaderKernels {  // for gpu::StepLowering
  using Workspace = vulkan::Workspace;
  using Norm = shader::NormParams;
  using Rope = shader::RopeParams;
  using GatedAct = shader::GatedActParams;
  using Elementwise = shader::ElementwiseParams;
  using Copy = shader::CopyParams;
  using Combine = shader::CombineParams;
  static Matrix matrix(const DeviceMatrix& matrix) { return shader_matrix(matrix); }
};

class Lowering final : public gpu::StepLowering<Lowering, ShaderKernels> {
 public:
  Lowering(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const Capabilities& device,
           bool starts_in_order, const Workspace& workspace)
      : StepLowering(graph, weights, cache, workspace), device_(device), starts_in_order_(starts_in_order) {}

  Result<Program> run();
  Result<Program> run_copy(Value v, CopyKind kind, int n_rows);  // copies logits or hidden states to the host

 private:
  friend class gpu::StepLowering<Lowering, ShaderKernels>;
  const std::string& device_name() const { return device_.name; }
  using StepLowering::lower;
  Status lower(const gpu::EmbedCall& call);
  Status lower(const gpu::QuantizeCall& call);
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

  struct Size {
    int64_t x = 1, y = 1, z = 1;
  };
  static Size flat(int64_t n_threads);  // a 1D grid of threads, folded
  // `n_arrivals`: workgroups that signal completion; 0: all.
  Status add(KernelKey key, std::span<const std::byte> params, const Size& grid, const Accesses& accesses,
             int64_t n_arrivals);
  template <class Params>
  Status emit(const KernelKey& key, const Params& params, const Size& grid, const Accesses& accesses,
              int64_t n_arrivals = 0) {
    return add(key, std::as_bytes(std::span(&params, 1)), grid, accesses, n_arrivals);
  }
  template <class Params>
  Status emit_threads(const char* kernel, const Params& params, int64_t n_threads, const Accesses& accesses) {
    return emit(with_counter_sync({kernel, {}}), params, flat(n_threads), accesses);
  }
  template <class Params>
  Status emit_warps(const char* kernel, const Params& params, int64_t n_warps, const Accesses& accesses) {
    return emit(with_counter_sync({kernel, {}}), params, {ceil_div(n_warps, kWarps)}, accesses);
  }
  Status emit_norm(NormKind kind, shader::NormParams& params, int64_t n_vectors, const Accesses& accesses);
  Status emit_norm_mode(NormMode mode, shader::NormParams& params, int64_t n_vectors, const Accesses& accesses);
  Status emit_copy(const gpu::RowCopy& copy, shader::CopyParams& params, int64_t n_elems, const Accesses& accesses);
  // Specializes a kernel for counter-based synchronization, where the device starts workgroups in order.
  KernelKey with_counter_sync(KernelKey key, CounterMode mode = kWaitsAndSignals) const;
  // And for a warm-up pass in decode, if all workgroups can start while the previous dispatch batch still runs: at most
  // one per multiprocessor.
  KernelKey with_warm_up(KernelKey key, int64_t n_workgroups) const;

  struct MatmulShape {
    KernelKey key;
    int rows, outputs;          // of a tile
    bool is_item_list = false;  // workgroups take tiles in turn; else each has one
  };
  bool uses_coopmat(const DeviceMatrix& matrix, bool is_expert) const;
  // Float weights, if their K splits leave most of the device idle otherwise.
  bool uses_gemm_floats(const gpu::MatmulCall& call) const;
  // Each workgroup prepares the input row in shared memory.
  bool stages_row(const gpu::MatmulCall& call) const;
  MatmulShape matmul_shape(const gpu::MatmulCall& call, int64_t x_rows) const;
  void fill_experts(const gpu::MatmulCall& call, bool is_small_batch, shader::LinearParams& params,
                    Accesses& accesses) const;
  Route route_of(const Node& route) const;
  template <class Params>
  void fill_q8(const gpu::QuantizedActivation& activation, Value, Params& params) const {
    params.q8 = workspace_.q8(activation);
  }
  template <class Params>
  void fill_rope(const Node& rope, Params& params) const {
    const RopeBuffers& table = workspace_.rope_buffers(rope);
    params.rope = {.coarse = table.coarse.address(),
                   .fine = table.fine.address(),
                   .n_pairs = table.n_pairs,
                   .adjacent = is_adjacent(rope),
                   .scalings = table.n_scalings > 1 ? static_cast<int>(workspace_.layout().rope_scalings) : 0,
                   .n_coarse = static_cast<int>(workspace_.n_coarse_positions())};
  }
  Status lower_attention_inputs(const gpu::AttentionCall& call);
  Status emit_attention(const Node& n, shader::AttentionParams& params, Accesses& accesses, bool is_fused);
  shader::ConvParams conv_params(const Node& n) const;
  shader::DeltaParams delta_params(const Node& n) const;
  Status lower_delta_chunks(shader::DeltaChunksParams& params, const Accesses& accesses);
  Status lower_delta_tokens(shader::DeltaChunksParams& params, DeltaTokens part, const Accesses& accesses);
  Status lower_delta_finish(const gpu::DeltaLayerCall& call, const shader::ConvParams& conv);
  int64_t max_active_seqs() const { return std::min(workspace_.max_seqs(), sizes_.max_tokens); }
  int n_head_segments(const Node& attention) const;

  int n_rows(Value v) const {
    if (max_rows(v) == 1) return kAlwaysOne;
    return info(v).rows == Rows::outputs ? kOutputs : kTokens;
  }

  const Capabilities& device_;
  bool starts_in_order_;  // Device::starts_in_order
  Program program_;
};

Result<std::vector<vk::Pipeline>> find_pipelines(Device& device, const Program& program);  // compiled if necessary
// Timestamps before the first and after each dispatch; none if timestamps is nullptr.
struct DispatchTimestamps {
  const Timestamps* timestamps = nullptr;
  uint32_t first = 0;
};
// Records the program into a command buffer. `step_offset`: of the step's parameters.
void record_program(const Device& device, vk::CommandBuffer commands, const Program& program,
                    std::span<const vk::Pipeline> pipelines, vk::DescriptorSet set, uint32_t step_offset,
                    const DispatchTimestamps& times = {});

// The kernels of a step on a GPU that need not be present (BackendInfo::step_kernels).
Result<StepKernels> step_kernels(std::string_view gpu, const Graph& graph, const BatchShape& step);

}  // namespace zinc::vulkan
