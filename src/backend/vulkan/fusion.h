// Which nodes of a graph run as one kernel, decided once for all sizes of steps. A group of nodes runs at its last one;
// what its earlier nodes read must live until then (later_uses).
//   products   linears, or expert linears, of one input in one format: together; two of them with the gate that reads
//              them; one of them with the sum that reads it
//   heads      the norms and rotations of q, k and v with the writing of keys and values
//   combines   the weighted sum of experts with the sum that reads it
//   norms      where only rounded products read one, steps of one token leave it to them
#pragma once

#include <vector>

#include "backend/vulkan/weights.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace zinc::vulkan {

// A value as some products read it: rows of n_in numbers rounded to 8 bits, `block` of them to a scale.
struct RoundedForm {
  int32_t owner = -1;
  int block = 0, n_in = 0;
  int first_node = 0, last_node = 0;  // from its making to its last use
};

struct ProductGroup {
  std::vector<int> nodes;  // linear or moe_linear, one to three
  int act = -1;            // the gated_act of nodes 0 (gate) and 1 (up)
  int add = -1;            // the add of node 0's result
  int at = 0;              // the node at which the group runs
};

// One of q, k, v on its way to attention.
struct HeadChain {
  Value x;  // none: no such part
  int norm = -1, rope = -1;
};
struct HeadGroup {
  int attention = -1;
  HeadChain parts[3];
};

class Fusion {
 public:
  Fusion(const Graph& graph, const VulkanWeights& weights, bool keep_values);

  int32_t owner(Value v) const { return owners_[static_cast<size_t>(v.id)]; }           // whose memory a view shows
  const ProductGroup* products_at(int node) const;                                      // that run there; nullptr: none
  const HeadGroup* heads_of(int attention) const;                                       // nullptr: not fused
  bool is_absorbed(int node) const { return is_absorbed_[static_cast<size_t>(node)]; }  // another node runs it
  int combine_at(int add) const { return combine_of_.empty() ? -1 : combine_of_[static_cast<size_t>(add)]; }
  int foldable_norm(Value x) const;  // the norm that made x, if its readers can do it; -1: none
  const std::vector<LaterUse>& later_uses() const { return later_uses_; }

  const std::vector<RoundedForm>& rounded_forms() const { return forms_; }
  const RoundedForm* form(Value v, int block, int n_in) const;  // nullptr: nobody reads it so
  // The only form anyone wants of v, with rows of n_in; nullptr: none, or there are others.
  const RoundedForm* only_form(Value v, int64_t n_in) const;
  bool is_read_as_floats(Value v) const;

 private:
  const Node& node(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  const DeviceMatrix* matrix_of(int node) const;
  bool is_product(int i) const { return node(i).op == Op::linear || node(i).op == Op::moe_linear; }
  bool has_one_reader(int32_t owner) const;
  int first_reader(int32_t owner) const;  // where it runs
  void find_readers();
  void find_heads();
  HeadChain chain_of(Value v) const;
  void find_products();
  void extend_group(ProductGroup& group) const;
  void finish_group(ProductGroup& group);
  bool are_siblings(int a, int b) const;
  void find_combines();
  void find_forms();
  void find_norms();

  const Graph& graph_;
  const VulkanWeights& weights_;
  bool keep_values_;
  std::vector<int32_t> owners_;
  std::vector<int> makers_;                // per value
  std::vector<std::vector<int>> readers_;  // per owner: nodes, views left out
  std::vector<bool> is_host_read_;         // per owner
  std::vector<int> runs_at_;               // per node
  std::vector<bool> is_absorbed_;
  std::vector<ProductGroup> products_;
  std::vector<HeadGroup> heads_;
  std::vector<int> combine_of_;    // per node: the moe_combine an add runs with; -1: none
  std::vector<bool> is_foldable_;  // per node: norms
  std::vector<RoundedForm> forms_;
  std::vector<LaterUse> later_uses_;
};

}  // namespace zinc::vulkan
