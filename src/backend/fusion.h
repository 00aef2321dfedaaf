// Which nodes of a graph run as one kernel on a GPU, decided once for all sizes of steps. A group of nodes runs at its
// last one; what its earlier nodes read must live until then (later_uses).
//   products   linears, or expert linears, of one input: together; two of them in one format with the gate that reads
//              them; one of them with the sum that reads it
//   heads      the norms and rotations of q, k and v with the writing of keys and values; in a step of one row all of
//              attention and the gate behind it
//   combines   the weighted sum of experts with the sum that reads it, where the backend has that
//   norms      where only rounded products read one, small steps leave it to them
//   sums       norms before the residual's sum with it; in a step of one row products that norm the sum may do that too
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace zinc {

// A weight matrix as far as fusing cares.
struct FusedMatrix {
  const void* format = nullptr;                // equal where the formats are
  int rounded_block = 0, n_in = 0, n_out = 0;  // rounded_block: activations that share a scale; 0: they stay floats
};
using FindMatrix = std::function<FusedMatrix(const std::string& name)>;

// What a backend's kernels take.
struct FusionLimits {
  size_t product_parts;        // matrices of a group
  int narrow_head;             // heads up to this are made ready together in steps of all sizes
  int64_t used, experts;       // experts of a token found and mixed within one kernel; of a layer, found
  int64_t row_elems;           // of a row whose norms and gates products do themselves
  int64_t mix_elems;           // of all rows that experts' last products read together
  int half_rows = 0;           // a gate and an up in one matrix are taken apart at multiples of this; 0: never
  int64_t stream_elems = 0;    // of a row that is normed and added to the residual in one kernel; 0: there is none
  bool sums_combines = false;  // a weighted sum of experts is also added to something
};

// A value as some products read it: rows of n_in numbers rounded to 8 bits, `block` of them to a scale.
struct RoundedForm {
  int32_t owner = -1;
  int block = 0, n_in = 0;
  int first_node = 0, last_node = 0;  // from its making to its last use
};

struct ProductGroup {
  std::vector<int> nodes;  // linear or moe_linear, of one to four matrices
  int act = -1;            // the gated_act of nodes 0 (gate) and 1 (up), which have one format
  int add = -1;            // the add of node 0's result, the only one
  int halves = -1;         // in steps of one row: the gated_act of the halves of node 0's result, where it runs then
  int at = 0;              // the node at which the group runs
};

// One of q, k, v on its way to attention.
struct HeadChain {
  Value x;  // none: no such part
  int slice = -1, norm = -1, rope = -1;
};
struct HeadGroup {
  int attention = -1;
  HeadChain parts[3];
  bool is_narrow = false;  // heads fit a warp: steps of all sizes make them ready together
  int act = -1;            // the gated_act of attention's result, in steps of one row
  HeadChain gate;          // its gate: x and slice
};

// In steps of one row: experts' last products, their sum, the shared expert's part in it and the residual's.
struct MixGroup {
  int down = -1, combine = -1;
  int shared = -1, shared_act = -1, shared_add = -1;  // -1: no shared expert that fits
  int add = -1;
  int at = 0;
};

// In steps of one row: norms of heads and a gate that products of the result do on the way in.
struct GatedHeads {
  int norm = -1, act = -1;
};

// In steps of one row: a delta layer from its convolution on.
struct DeltaGroup {
  int delta = -1, conv = -1, q_norm = -1, k_norm = -1;
};

// Norms of one or two results, their sum, its norm, the residual's sum with it and a factor; and a second result that
// is a norm of the first one with two factors.
struct AddNormed {
  int norms[2] = {-1, -1}, sum = -1, outer = -1, add = -1, mul = -1;
  int branch_norm = -1, branch_scale = -1, branch_mul = -1;
  int at = 0;
  int by_products_at = -1;  // in steps of one row: where products do all of it on the way in; -1: none do
};

class Fusion {
 public:
  Fusion(const Graph& graph, const FindMatrix& matrix, const FusionLimits& limits, bool keep_values);

  int32_t owner(Value v) const { return owners_[static_cast<size_t>(v.id)]; }  // whose memory a view shows
  int maker(Value v) const { return makers_[static_cast<size_t>(owner(v))]; }
  const ProductGroup* products_at(int node) const;  // that run there; nullptr: none
  const ProductGroup* halves_at(int node) const;    // in a step of one row: that run there with their gate
  const HeadGroup* heads_of(int attention) const;   // nullptr: not fused
  const HeadGroup* attention_at(int node) const;    // in a step of one row: that runs there; nullptr: none
  // Another node runs it.
  bool is_absorbed(int node, bool is_one_row) const {
    return is_absorbed_[static_cast<size_t>(node)] ||
           (is_one_row && is_absorbed_in_one_row_[static_cast<size_t>(node)]);
  }
  // The moe_combine that an add runs with in steps of more rows; -1: none.
  int combine_at(int add) const { return combine_of_[static_cast<size_t>(add)]; }
  // The norm that made x, if its readers can do it; -1: none. For a step of one row all products can, else those of
  // rounded activations.
  int foldable_norm(Value x, bool is_one_row) const;
  // In a step of one row: what x is a copy of; the mix that runs at a node; the heads x is made of; the route whose
  // logits a product makes, and the one that a group of experts finds itself by. nullptr or -1: none.
  Value row_source(Value x) const;
  const MixGroup* mix_at(int node) const;
  bool is_mixed(const ProductGroup& group) const {  // its products belong to a mix
    return is_absorbed_in_one_row_[static_cast<size_t>(group.nodes[0])];
  }
  const GatedHeads* gated_heads(Value x) const;
  const DeltaGroup* delta_at(int node) const;
  const AddNormed* add_normed_at(int node) const;
  const AddNormed* add_normed_with(int node) const;                 // that has it as a member, for steps of more rows
  const AddNormed* add_normed_in(const ProductGroup& group) const;  // that it does on the way in; nullptr: none
  bool is_shared_gate(int product) const;                           // its one number is a mix's
  int route_of_logits(int product) const;
  int route_of_experts(const ProductGroup& group) const;
  // The norm's readers are products, and it is done by them.
  bool is_folded(int norm, bool is_one_row) const {
    return (is_one_row ? folds_in_one_row_ : is_foldable_)[static_cast<size_t>(norm)];
  }
  const std::vector<LaterUse>& later_uses() const { return later_uses_; }

  const std::vector<RoundedForm>& rounded_forms() const { return forms_; }
  const RoundedForm* form(Value v, int block, int n_in) const;  // nullptr: nobody reads it so
  // The only form anyone wants of v, with rows of n_in; nullptr: none, or there are others.
  const RoundedForm* only_form(Value v, int64_t n_in) const;
  bool is_read_as_floats(Value v) const;

 private:
  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const FusedMatrix* matrix_of(int node) const { return &matrices_[static_cast<size_t>(node)]; }
  bool is_product(int i) const { return node(i).op == Op::linear || node(i).op == Op::moe_linear; }
  bool has_one_reader(int32_t owner) const;
  int first_reader(int32_t owner) const;  // where it runs
  void find_readers();
  void find_heads();
  HeadChain chain_of(Value v) const;
  void strip_slice(HeadChain& chain) const;
  void find_gate(HeadGroup& group) const;
  void absorb_heads(const HeadGroup& group);
  void find_products();
  void extend_group(ProductGroup& group) const;
  void finish_group(ProductGroup& group);
  bool are_siblings(int a, int b) const;
  bool are_gated(int a, int b) const;
  void find_halves();
  int act_of_halves(int product) const;  // -1: none
  void find_combines();
  void find_forms();
  void find_norms();
  void find_rows();
  void find_mixes();
  void extend_mix(MixGroup& mix) const;
  void find_gated_heads();
  void find_routes();
  void find_deltas();
  bool is_row_norm(int i) const;
  bool is_sum_of_norms(int sum) const;
  AddNormed normed_by(int norm) const;
  void find_branch(AddNormed& group) const;
  int products_that_add(const AddNormed& group) const;  // where they run; -1: none
  void find_added_norms();
  int sliced_from(Value v, int64_t begin) const;  // the maker of what v is a part of, from there on; -1: none
  int only_reader(Value v) const;                 // -1: none or several
  int32_t result_of(int i) const { return owner(node(i).out[0]); }

  const Graph& graph_;
  FusionLimits limits_;
  bool keep_values_;
  std::vector<FusedMatrix> matrices_;  // per node: products
  std::vector<int32_t> owners_;
  std::vector<int> makers_;                // per value
  std::vector<std::vector<int>> readers_;  // per owner: nodes, views left out
  std::vector<bool> is_host_read_;         // per owner
  std::vector<int> runs_at_;               // per node
  std::vector<bool> is_absorbed_, is_absorbed_in_one_row_;
  std::vector<ProductGroup> products_;
  std::vector<HeadGroup> heads_;
  std::vector<int> combine_of_;  // per node: an add's moe_combine; -1: none
  std::vector<MixGroup> mixes_;
  std::vector<GatedHeads> gated_heads_;
  std::vector<DeltaGroup> deltas_;
  std::vector<AddNormed> added_norms_;
  std::vector<int> routes_;                           // that are done within other launches
  std::vector<bool> is_foldable_, folds_in_one_row_;  // per node: norms
  std::vector<RoundedForm> forms_;
  std::vector<LaterUse> later_uses_;
};

}  // namespace zinc
