// Lowers a graph to dispatches for one class of step sizes (maximum tokens and outputs): one function per op, looked up
// in a table. Chooses kernels, grids, fusion and barriers, so that a step only replays the recorded commands. Needs no
// device, only its capabilities.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "backend/gpu/kernel_times.h"
#include "backend/gpu/step_class.h"
#include "backend/vulkan/timestamps.h"
#include "backend/vulkan/workspace.h"
#include "base/ceil_div.h"

namespace zinc::vulkan {

// Memory that a dispatch reads or writes.
struct MemoryRange {
  Address begin = 0;
  size_t n_bytes = 0;
};

// A kernel of a step as plain data.
struct Dispatch {
  KernelKey kernel;
  uint32_t params_offset = 0;  // in Program::params
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::vector<MemoryRange> reads, writes;
  int n_arrivals = 0;  // workgroups that signal completion to the next dispatches (shader/counter_sync.glsl); 0: none
  bool needs_barrier = false;       // before the dispatch
  std::vector<int32_t> nodes = {};  // of the graph, that it computes
};

struct Program {
  std::vector<Dispatch> dispatches;
  std::vector<std::byte> params;  // of all dispatches
};

// Passes over the dispatches of a program. The first one puts a barrier before each dispatch that reads or writes what
// an earlier one since the last barrier wrote, or writes what it read.
void insert_barriers(std::span<Dispatch> dispatches);
// Dispatches between two barriers are a batch. If all dispatches of two consecutive batches can count their workgroups,
// the barrier between them is replaced: the second batch polls the first batch's counter. `counters`: address of
// kCounterBytes per batch.
void replace_barriers_by_counters(Program& program, Address counters);

struct AttentionSize {
  int k_dim = 0, v_dim = 0, kv_format = kKvF16;
  int n_head_segments = 1;  // segments of 256 elements in max(k_dim, v_dim)
  bool is_split = false,
       is_fused =
           false;  // is_split: split-KV, for few tokens; is_fused: decode with norm and RoPE in the same dispatch
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

class Lowering {
 public:
  Lowering(const Graph& graph, const gpu::Weights& weights, const gpu::Cache& cache, const Capabilities& device,
           bool starts_in_order, const Workspace& workspace, gpu::StepClass sizes)
      : graph_(graph),
        weights_(weights),
        cache_(cache),
        device_(device),
        starts_in_order_(starts_in_order),
        workspace_(workspace),
        sizes_(sizes) {}

  Result<Program> run();
  Result<Program> run_copy(Value v, CopyKind kind, int n_rows);  // copies logits or hidden states to the host

 private:
  using Lower = Status (Lowering::*)(int node);
  static Lower find(Op op);

  Status lower(int i);
  bool is_decode() const { return sizes_.max_tokens == 1; }

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

  struct Accesses {
    std::vector<MemoryRange> reads, writes;
    int64_t n_arrivals = 0;  // workgroups that signal completion; 0: all
  };
  struct Size {
    int64_t x = 1, y = 1, z = 1;
  };
  static Size flat(int64_t n_threads);  // a 1D grid of threads, folded
  Status add(KernelKey key, std::span<const std::byte> params, const Size& grid, const Accesses& accesses);
  template <class Params>
  Status emit(const KernelKey& key, const Params& params, const Size& grid, const Accesses& accesses) {
    return add(key, std::as_bytes(std::span(&params, 1)), grid, accesses);
  }
  KernelKey with_counter_sync(KernelKey key, int64_t n_workgroups) const;

  // Fused prologue of a decode matmul: each workgroup prepares the single input row in shared memory.
  struct RowPrologue {
    bool stages_row = false;  // at least quantizes the row
    MatmulInputKind kind = kPlainInput;
    int gate_act = 0;  // activation of kGatedNormInput
  };
  struct MatmulShape {
    KernelKey key;
    int rows, outputs;  // per workgroup
  };
  bool uses_coopmat(const DeviceMatrix& matrix, bool is_expert) const;
  MatmulShape matmul_shape(const MatmulGroup& group, const DeviceMatrix& matrix, int64_t x_rows,
                           const RowPrologue& prologue) const;
  Status lower_matmuls(const MatmulGroup& group);
  Status lower_same_format(const MatmulGroup& group);
  Status lower_moe_down_combine(const MoeDownCombine& moe);
  RowPrologue fill_prologue(Value x, shader::LinearParams& params, Accesses& accesses) const;
  Status fill_inputs(const MatmulGroup& group, RowPrologue& prologue, shader::LinearParams& params, Accesses& accesses);
  void fill_experts(const MatmulGroup& group, bool is_small_batch, shader::LinearParams& params,
                    Accesses& accesses) const;
  Value other_operand(int add, Value result) const;
  Route route_of(int route) const;
  void fill_parts(const MatmulGroup& group, shader::LinearParams& params, Accesses& accesses) const;
  Status lower_combine(int combine, int add);
  // Emits the quantization of v.
  Status quantize(Value v, const QuantizedActivation& activation);
  bool is_quantized(const QuantizedActivation* activation) const;
  // What the producer of a value writes: floats, q8 or both; only q8 if no node reads the floats.
  struct OutputBuffers {
    Address floats = 0;
    Q8Activation q8{};
  };
  OutputBuffers output_buffers(Value v, int64_t n_in, Accesses& accesses);
  bool quantizes_in_kernel(Value x, int n_in) const;
  Status lower_attention_inputs(int attention, const KvLayer& kv);
  Status lower_attend_decode(const AttentionGroup& group);
  Status emit_attention(int i, shader::AttentionParams& params, Accesses& accesses, bool is_fused);
  shader::ConvParams conv_params(const Node& n) const;
  shader::DeltaParams delta_params(const Node& n) const;
  Status check_recurrence(const shader::ConvParams& conv) const;
  Status check_recurrence(const shader::DeltaParams& delta) const;
  Status lower_delta_decode(const DeltaGroup& group);
  Status lower_delta_chunks(shader::DeltaChunksParams& params, const Accesses& accesses);
  Status lower_delta_tokens(shader::DeltaChunksParams& params, DeltaTokens part, const Accesses& accesses);
  int64_t max_active_seqs() const { return std::min(workspace_.max_seqs(), sizes_.max_tokens); }
  void fill_attention_inputs(int attention, HeadInput (&parts)[3], Accesses& accesses) const;
  HeadInput head_input(const AttentionInput& input) const;
  RopeTable rope_table(int rope) const;
  int n_head_segments(int attention) const;

  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  int n_rows(Value v) const {
    if (max_rows(v) == 1) return kAlwaysOne;
    return info(v).rows == Rows::outputs ? kOutputs : kTokens;
  }
  MemoryRange range_of(Value v) const {
    return {workspace_.address(v), static_cast<size_t>(max_rows(v)) * static_cast<size_t>(width(v)) * sizeof(float)};
  }
  const DeviceMatrix& matrix_of(int i) const { return *weights_.matrix(info(node(i).in[1]).name); }
  Address vector(Value v) const { return v ? weights_.vector(info(v).name) : 0; }

  const Graph& graph_;
  const gpu::Weights& weights_;
  const gpu::Cache& cache_;
  const Capabilities& device_;
  bool starts_in_order_;  // Device::starts_in_order
  const Workspace& workspace_;
  gpu::StepClass sizes_;
  Program program_;
  int lowered_node_ = -1;                              // the node whose dispatches are being added
  std::vector<const QuantizedActivation*> quantized_;  // already written
};

Result<std::vector<VkPipeline>> find_pipelines(Device& device, const Program& program);  // compiled if necessary
// Timestamps before the first and after each dispatch; none if timestamps is nullptr.
struct DispatchTimestamps {
  const Timestamps* timestamps = nullptr;
  uint32_t first = 0;
};
// Records the program into a command buffer. `step_offset`: of the step's parameters.
void record_program(const Device& device, VkCommandBuffer commands, const Program& program,
                    std::span<const VkPipeline> pipelines, VkDescriptorSet set, uint32_t step_offset,
                    const DispatchTimestamps& times = {});

}  // namespace zinc::vulkan
