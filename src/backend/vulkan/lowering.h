// From a graph to dispatches, for steps of up to so many tokens and outputs: one function per op, found in a table.
// Decides everything a step would otherwise have to: which kernel, which grid, what is fused, where a barrier is
// needed.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "backend/vulkan/room.h"

namespace zinc::vulkan {

inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct StepClass {
  int max_tokens = 1, max_outputs = 1;
};

// Memory a dispatch reads or writes.
struct Touch {
  Address begin = 0;
  size_t n_bytes = 0;
};

struct Dispatch {
  VkPipeline pipeline = VK_NULL_HANDLE;
  uint32_t block = 0;  // where its parameters begin
  std::array<uint32_t, 3> grid = {1, 1, 1};
  bool waits = false;  // for those before it, with a barrier
  int n_counted = 0;   // workgroups that count themselves when they are done: shader/chain.glsl
};

struct Program {
  std::vector<Dispatch> dispatches;
  std::vector<std::byte> blocks;  // the parameters
};

struct AttentionSize {
  int k_dim = 0, v_dim = 0, kv_kind = kKvF16;
  int head_eights = 1;                      // segments of 256 numbers the longer of both has
  bool is_split = false, is_fused = false;  // few tokens; one token, whose heads are made ready on the way
};
struct AttentionShape {
  KernelKey key;
  int rows;  // a token's head each, of a workgroup
};
// Which kernel, and how many rows a workgroup has: as many as its shared memory holds. The same kernel in steps of all
// sizes: they must give the same bits.
Result<AttentionShape> attention_shape(const Capabilities& device, const AttentionSize& size);

// Whether a prompt's products run on two planes of bytes: where the format has them, and the workgroup's memory holds
// those of a tile of 32 * warp_rows rows (shader/gemm_planes.comp). The same bits either way.
bool has_planes(const Capabilities& device, const PanelFormat& format, int warp_rows);

class Lowering {
 public:
  Lowering(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache, Device& device, const Room& room,
           StepClass sizes)
      : graph_(graph), weights_(weights), cache_(cache), device_(device), room_(room), sizes_(sizes) {}

  Result<Program> run();
  Result<Program> run_copy(Value v, CopyKind kind, int n_rows);  // of logits or hidden states to the host

 private:
  using Lower = Status (Lowering::*)(int node);
  static Lower find(Op op);

  Status lower(int i);
  bool is_one_row() const { return sizes_.max_tokens == 1; }

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

  struct Touched {
    std::vector<Touch> reads, writes;
    int64_t n_counted = 0;  // workgroups that count themselves, if not all do
  };
  struct Size {
    int64_t x = 1, y = 1, z = 1;
  };
  static Size flat(int64_t n_threads);  // a grid of single threads
  Status add(KernelKey key, std::span<const std::byte> block, const Size& grid, const Touched& touched);
  template <class Block>
  Status emit(const KernelKey& key, const Block& block, const Size& grid, const Touched& touched) {
    return add(key, std::as_bytes(std::span(&block, 1)), grid, touched);
  }
  bool must_wait(const Touched& touched);
  KernelKey chained(KernelKey key, int64_t n_workgroups) const;
  void chain_groups();

  // What each workgroup makes of the one row for itself.
  struct RowInput {
    bool makes = false;  // it rounds it, at least
    InputKind kind = kAsIs;
    int gate_act = 0;  // of gated heads
  };
  struct ProductShape {
    KernelKey key;
    int rows, outputs;  // of a workgroup
  };
  bool on_matrices(const DeviceMatrix& matrix, bool is_expert) const;
  ProductShape shape_of(const ProductGroup& group, const DeviceMatrix& matrix, int64_t x_rows,
                        const RowInput& input) const;
  bool stages_segments(const DeviceMatrix& matrix, bool is_expert, const RowInput& input) const;
  Status lower_products(const ProductGroup& group);
  Status lower_part(const ProductGroup& group);
  Status lower_mix(const MixGroup& mix);
  RowInput fill_row(Value x, LinearBlock& block, Touched& touched) const;
  Status fill_inputs(const ProductGroup& group, RowInput& input, LinearBlock& block, Touched& touched);
  void fill_experts(const ProductGroup& group, bool is_few, LinearBlock& block, Touched& touched) const;
  Value other_operand(int add, Value result) const;
  Route route_of(int route) const;
  void fill_parts(const ProductGroup& group, LinearBlock& block, Touched& touched) const;
  Status lower_combine(int combine, int add);
  // The rounded form of v, made now if nobody did.
  Status make_rounded(Value v, const RoundedForm& form);
  bool is_made(const RoundedForm* form) const;
  // What its maker leaves of a value: the rounded form alone where nobody reads the floats.
  struct Written {
    Address floats = 0;
    Rounded rounded{};
  };
  Written written(Value v, int64_t n_in, Touched& touched);
  bool rounds_inside(Value x, int n_in) const;
  Status lower_heads(int attention, const KvLayer& kv);
  Status lower_attend_one(const HeadGroup& group);
  Status emit_attention(int i, AttentionBlock& block, Touched& touched, bool is_fused);
  ConvBlock conv_block(const Node& n) const;
  DeltaBlock delta_block(const Node& n) const;
  Status check_recurrence(const ConvBlock& conv) const;
  Status check_recurrence(const DeltaBlock& delta) const;
  Status lower_delta_one(const DeltaGroup& group);
  Status lower_delta_chunks(DeltaChunksBlock& block, const Touched& touched);
  Status lower_delta_tokens(DeltaChunksBlock& block, DeltaPart part, const Touched& touched);
  int64_t max_runs() const { return std::min(room_.max_seqs(), sizes_.max_tokens); }
  void fill_heads(int attention, HeadPart (&parts)[3], Touched& touched) const;
  HeadPart head_part(const HeadChain& chain) const;
  Turns turns_of(int rope) const;
  int head_eights(int attention) const;

  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const ValueInfo& info(Value v) const { return graph_.info(v); }
  int64_t width(Value v) const { return info(v).shape.elems(); }
  int64_t inner(Value v) const { return info(v).shape.inner(); }
  int max_rows(Value v) const { return info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  int n_rows(Value v) const {
    if (max_rows(v) == 1) return kAlwaysOne;
    return info(v).rows == Rows::outputs ? kOutputs : kTokens;
  }
  Touch all(Value v) const {
    return {room_.at(v), static_cast<size_t>(max_rows(v)) * static_cast<size_t>(width(v)) * sizeof(float)};
  }
  const DeviceMatrix& matrix_of(int i) const { return *weights_.matrix(info(node(i).in[1]).name); }
  Address vector(Value v) const { return v ? weights_.vector(info(v).name) : 0; }

  const Graph& graph_;
  const VulkanWeights& weights_;
  const VulkanCache& cache_;
  Device& device_;
  const Room& room_;
  StepClass sizes_;
  Program program_;
  std::vector<const RoundedForm*> made_;  // forms written so far
  Touched pending_;                       // since the last barrier
};

// The program into a command buffer. `step`: where the step's block begins.
void record_program(const Device& device, VkCommandBuffer commands, const Program& program, VkDescriptorSet set,
                    uint32_t step);

}  // namespace zinc::vulkan
