// Decides which nodes of a graph run as one kernel on a GPU, once for all step sizes. A group runs at its last node, so
// the inputs of its earlier nodes must stay alive until then (extended_uses).
//   matmuls    linears (or expert linears) of one input run together; a gate and an up matrix of one format also run
//              the gated activation as epilogue; a single matrix can run the add that reads it as epilogue
//   attention  norm and RoPE of q, k and v with the KV cache write; in decode all of attention and its output gate
//   combines   the weighted sum of experts with the add that reads it, if the backend supports that
//   norms      a norm read only by q8 matmuls is their prologue in small steps
//   residual   norms followed by the residual add; in decode this can be the prologue of the next matmuls
// "Decode" means a step of one row (batch 1) in this file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace zinc {

// The properties of a weight matrix that fusion depends on.
struct FusedMatrix {
  const void* format = nullptr;           // compared by address
  int q8_block = 0, n_in = 0, n_out = 0;  // q8_block: quantized activations per scale; 0: floats
};
using FindMatrix = std::function<FusedMatrix(const std::string& name)>;

// Limits of a backend's kernels.
struct FusionLimits {
  size_t max_matmul_parts;                // matrices per group
  int max_warp_head_dim;                  // largest head_dim whose norm, RoPE and KV write are fused at all step sizes
  int64_t max_experts_used, max_experts;  // top-k per token; experts per layer that one kernel can route
  int64_t max_prologue_elems;             // row length for a norm or gate in a matmul's prologue
  int64_t max_moe_down_elems;             // inputs of all experts' down projections of a token
  int gate_up_row_multiple = 0;           // a packed gate_up matrix is split at multiples of this; 0: never
  int64_t max_residual_elems = 0;         // row length for norm + residual add in one kernel; 0: no such kernel
  bool adds_after_combine = false;        // moe_combine supports an add as epilogue
};

// A value as q8 matmuls read it: rows of n_in elements quantized to 8 bits, one scale per `block` elements.
struct QuantizedActivation {
  int32_t storage_root = -1;
  int block = 0, n_in = 0;
  int first_node = 0, last_node = 0;  // live range: from its producer to its last use
};

struct MatmulGroup {
  std::vector<int> nodes;  // linear or moe_linear nodes, one to max_matmul_parts
  int act = -1;            // epilogue: the gated_act of nodes 0 (gate) and 1 (up), which have the same format
  int add = -1;            // epilogue: the add that reads node 0's result; the group has one node
  int gate_up_act = -1;    // decode only: the gated_act of the two halves of node 0's result; the group runs there
  int at = 0;              // the node where the group runs
};

// The chain of nodes from a matmul's result x to q, k or v of attention; -1: no such node.
struct AttentionInput {
  Value x;  // null: attention has no such input
  int slice = -1, norm = -1, rope = -1;
};
struct AttentionGroup {
  int attention = -1;
  AttentionInput parts[3];
  bool fits_warp = false;  // head_dim fits a warp: inputs are fused at all step sizes
  int act = -1;            // decode only: the gated_act (output gate) of attention's result
  AttentionInput gate;     // of act: x and slice
};

// Decode only: the experts' down projections, their weighted sum, the shared expert and the residual add.
struct MoeDownCombine {
  int down = -1, combine = -1;
  int shared = -1, shared_act = -1, shared_add = -1;  // -1: no shared expert, or it cannot be fused
  int add = -1;
  int at = 0;
};

// Decode only: a per-head norm and a gate (RMSNormGated) as the prologue of the matmuls that read the result.
struct GatedNorm {
  int norm = -1, act = -1;
};

// Decode only: a gated delta rule layer from its convolution on.
struct DeltaGroup {
  int delta = -1, conv = -1, q_norm = -1, k_norm = -1;
};

// add(residual, norm(x)) or add(residual, outer(norm(x0) + norm(x1))), optionally times a scalar `mul`. Optional
// second output: norm of the first one, times a scalar and a vector. -1: not present.
struct NormResidual {
  int norms[2] = {-1, -1}, sum = -1, outer = -1, add = -1, mul = -1;
  int second_norm = -1, second_norm_scale = -1, second_norm_mul = -1;
  int at = 0;
  int in_matmul_at = -1;  // decode only: the node of the matmuls that have it as prologue; -1: none
};

class Fusion {
 public:
  Fusion(const Graph& graph, const FindMatrix& matrix, const FusionLimits& limits, bool keep_values);

  // The value whose memory v uses: v itself, or the value that a view aliases.
  int32_t storage_root(Value v) const { return storage_roots_[static_cast<size_t>(v.id)]; }
  int producer(Value v) const { return producers_[static_cast<size_t>(storage_root(v))]; }
  const MatmulGroup* matmuls_at(int node) const;               // the group that runs at this node; nullptr: none
  const MatmulGroup* gate_up_at(int node) const;               // decode: the packed gate_up group that runs there
  const AttentionGroup* fused_inputs_of(int attention) const;  // inputs fused at all step sizes; nullptr: not
  const AttentionGroup* attention_at(int node) const;          // decode: the group that runs there; nullptr: none
  // The node runs as part of a group at another node.
  bool is_absorbed(int node, bool is_decode) const {
    return is_absorbed_[static_cast<size_t>(node)] || (is_decode && is_absorbed_in_decode_[static_cast<size_t>(node)]);
  }
  // The moe_combine that runs with this add in steps of more than one row; -1: none.
  int combine_at(int add) const { return combine_of_[static_cast<size_t>(add)]; }
  // The norm that produces x, if the matmuls that read x run it as their prologue; -1: none. In decode all matmuls can,
  // otherwise only q8 matmuls.
  int prologue_norm(Value x, bool is_decode) const;
  // Decode (steps of one row), nullptr or -1: none.
  Value row_source(Value x) const;  // the value that x is a copy of: the only row is the output row
  const MoeDownCombine* moe_down_at(int node) const;
  bool is_moe_down(const MatmulGroup& group) const {  // its matmuls run in a MoeDownCombine
    return is_absorbed_in_decode_[static_cast<size_t>(group.nodes[0])];
  }
  const GatedNorm* gated_norm(Value x) const;  // the gated norm that produces x
  const DeltaGroup* delta_at(int node) const;
  const NormResidual* norm_residual_at(int node) const;
  const NormResidual* norm_residual_with(int node) const;  // the group that contains it, in steps of more rows
  const NormResidual* norm_residual_in(const MatmulGroup& group) const;  // the prologue of `group`; nullptr: none
  bool is_shared_expert_gate(int matmul) const;                          // its result is the shared expert's gate
  int route_of_logits(int matmul) const;                                 // the moe_route that reads the matmul's logits
  int route_of_experts(const MatmulGroup& group) const;  // the moe_route that the group of experts computes itself
  // The norm runs as the prologue of the matmuls that read it.
  bool is_prologue_norm(int norm, bool is_decode) const {
    return (is_decode ? is_decode_prologue_norm_ : is_prologue_norm_)[static_cast<size_t>(norm)];
  }
  const std::vector<ExtendedUse>& extended_uses() const { return extended_uses_; }

  const std::vector<QuantizedActivation>& quantized_activations() const { return quantized_; }
  const QuantizedActivation* quantized(Value v, int block, int n_in) const;  // nullptr: not read like this
  // The quantized activation of v if it is the only one and its rows have n_in elements; else nullptr.
  const QuantizedActivation* only_quantized(Value v, int64_t n_in) const;
  bool is_read_as_floats(Value v) const;

 private:
  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const FusedMatrix* matrix_of(int node) const { return &matrices_[static_cast<size_t>(node)]; }
  bool is_matmul(int i) const { return node(i).op == Op::linear || node(i).op == Op::moe_linear; }
  bool has_one_reader(int32_t value) const;
  int first_reader(int32_t value) const;  // the node where it runs
  void find_readers();
  void find_attentions();
  AttentionInput chain_of(Value v) const;
  void strip_slice(AttentionInput& chain) const;
  void find_output_gate(AttentionGroup& group) const;
  void absorb_attention(const AttentionGroup& group);
  void find_matmuls();
  void extend_group(MatmulGroup& group) const;
  void finish_group(MatmulGroup& group);
  bool are_siblings(int a, int b) const;
  bool are_gated(int a, int b) const;
  void find_gate_ups();
  int act_of_gate_up(int matmul) const;  // -1: none
  void find_combines();
  void find_quantized();
  void find_norms();
  void find_rows();
  void find_moe_downs();
  void extend_moe_down(MoeDownCombine& moe) const;
  void find_gated_norms();
  void find_routers();
  void find_deltas();
  bool is_row_norm(int i) const;
  bool is_sum_of_norms(int sum) const;
  NormResidual norm_residual_of(int norm) const;
  void find_second_norm(NormResidual& group) const;
  int matmuls_that_add_residual(const NormResidual& group) const;  // the node where they run; -1: none
  void find_norm_residuals();
  int sliced_from(Value v, int64_t begin) const;  // the producer of the value that v slices at `begin`; -1: none
  int only_reader(Value v) const;                 // -1: none or several
  int32_t result_of(int i) const { return storage_root(node(i).out[0]); }

  const Graph& graph_;
  FusionLimits limits_;
  bool keep_values_;
  std::vector<FusedMatrix> matrices_;  // per node: matmuls
  std::vector<int32_t> storage_roots_;
  std::vector<int> producers_;             // per value
  std::vector<std::vector<int>> readers_;  // per storage root: nodes, without views
  std::vector<bool> is_host_read_;         // per storage root
  std::vector<int> runs_at_;               // per node
  std::vector<bool> is_absorbed_, is_absorbed_in_decode_;
  std::vector<MatmulGroup> matmuls_;
  std::vector<AttentionGroup> attentions_;
  std::vector<int> combine_of_;  // per node: an add's moe_combine; -1: none
  std::vector<MoeDownCombine> moe_downs_;
  std::vector<GatedNorm> gated_norms_;
  std::vector<DeltaGroup> deltas_;
  std::vector<NormResidual> norm_residuals_;
  std::vector<int> routers_;                                      // moe_route nodes computed inside other kernels
  std::vector<bool> is_prologue_norm_, is_decode_prologue_norm_;  // per node: norms
  std::vector<QuantizedActivation> quantized_;
  std::vector<ExtendedUse> extended_uses_;
};

}  // namespace zinc
