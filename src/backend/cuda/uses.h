// Who makes and who reads each value of a graph, views looked through: what fusing kernels must know.
#pragma once

#include <vector>

#include "backend/cuda/weights.h"
#include "graph/graph.h"

namespace zinc::cuda {

// A value as some products read it: rows of n_in numbers rounded to 8 bits, `block` of them to a scale.
struct RoundedForm {
  int32_t owner = -1;
  int block = 0, n_in = 0;
  int first_node = 0, last_node = 0;  // from its making to its last use
};

class Uses {
 public:
  Uses(const Graph& graph, const CudaWeights& weights, bool keep_values);

  int32_t owner(Value v) const { return owners_[static_cast<size_t>(v.id)]; }  // whose memory a view shows
  const std::vector<RoundedForm>& rounded_forms() const { return forms_; }
  const RoundedForm* form(Value v, int block, int n_in) const;  // nullptr: nobody reads it so
  // The form its maker can write at once: the first one wanted with rows of that width.
  const RoundedForm* form_of_width(Value v, int64_t n_in) const;
  bool is_read_only_rounded(Value v) const;  // nobody reads the floats
  // The node that adds something to this product and can be left to it; -1: none.
  int fused_add(int node) const { return fused_adds_[static_cast<size_t>(node)]; }

 private:
  void find_forms(const Graph& graph, const CudaWeights& weights);
  void find_adds(const Graph& graph, const CudaWeights& weights);

  std::vector<int32_t> owners_;
  std::vector<int> makers_;         // per value: node; -1: a weight
  std::vector<int> n_float_reads_;  // per owner
  std::vector<int> n_reads_;        // per owner
  std::vector<RoundedForm> forms_;
  std::vector<int> fused_adds_;
  bool keep_values_;
};

}  // namespace zinc::cuda
