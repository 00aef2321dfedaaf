// Which part of a graph each of n devices computes, if every layer is divided over all of them (tensor parallelism,
// docs/adr/0058). A matmul whose input can be computed in parts is split by columns ("row parallel"), the matmuls
// before it by rows ("column parallel"), with what lies between: heads of attention and of delta rules, channels of a
// convolution, elements of an activation. What it gives are partial sums, one per device. They are summed when a node
// needs their sum: there the graph is cut into stages. All else is computed by each device that needs it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "graph/index_ranges.h"

namespace zinc {

inline constexpr size_t kMaxShards = 32;

class ShardLayout {
 public:
  // REQUIRES: 2 to kMaxShards devices. Fails if a value that crosses stages is not a row of floats per token.
  static Result<ShardLayout> make(const Graph& graph, size_t n_devices);

  size_t n_devices() const { return n_devices_; }
  size_t root() const { return n_devices_ - 1; }  // embeds, and computes the output head
  int n_stages() const { return n_stages_; }
  int stage(size_t node) const { return stages_[node]; }
  bool runs(size_t device, size_t node) const { return runs_[device][node]; }
  // Whether the value is a sum of partial sums, and whether that of a device is one of them.
  bool is_partial(Value v) const { return partial_on_[index(v)] != 0; }
  bool is_partial_on(Value v, size_t device) const { return (partial_on_[index(v)] >> device & 1) != 0; }
  // The device that adds to its partial sum what is not a partial sum: a residual stream, a bias.
  size_t first_device(Value partial) const;
  // Whether the node reads the sum of a partial value, and not the partial sum.
  bool reads_sum(size_t node, Value v) const {
    return is_partial(v) && sum_stages_[index(v)] >= 0 && stages_[node] >= sum_stages_[index(v)];
  }
  bool needs_sum(Value v) const { return sum_needed_[index(v)]; }  // some device does
  // The elements of a row that the device computes, of a value that is not partial. Of values of routed experts: of the
  // row of each expert.
  const IndexRanges& elems(size_t device, Value v) const { return elems_[device][index(v)]; }
  bool is_per_expert(Value v) const { return is_per_expert_[index(v)]; }
  // The columns of a matmul split by columns; nullptr: it is not split so.
  const std::vector<IndexRanges>* columns(size_t node) const {
    return columns_[node].empty() ? nullptr : &columns_[node];
  }
  // Heads of an attention's cache, or key heads of a delta rule.
  const IndexRanges& heads(size_t device, size_t node) const { return heads_[node][device]; }

  // Matmuls split by columns that fewer devices than all compute, as "attention of layers 0-3 on 1 of 2 devices".
  std::vector<std::string> notes() const;

 private:
  friend class ShardDivider;
  ShardLayout(const Graph& graph, size_t n_devices);
  static size_t index(Value v) { return static_cast<size_t>(v.id); }
  bool accepts_partial(const Node& node, size_t input) const;
  void find_partial_values();
  void choose_partial(size_t node);
  void cut_before(size_t node);
  void find_needs();
  void need(size_t device, size_t node, Value v, const IndexRanges& elems);
  void need_all(size_t device, size_t node, Value v);
  void need_inputs_of_partial(size_t device, size_t node);
  void need_inputs(size_t device, size_t node, const IndexRanges& out);
  void need_heads(size_t device, size_t node);
  Status check_crossing_values() const;

  const Graph* graph_;
  size_t n_devices_;
  int n_stages_ = 1;
  std::vector<int> stages_;                        // by node
  std::vector<std::vector<IndexRanges>> columns_;  // by node, device
  std::vector<std::vector<IndexRanges>> heads_;    // by node, device: REQUIRED of attention and delta_net
  std::vector<uint32_t> partial_on_;               // by value: devices, as bits
  std::vector<int> sum_stages_, produced_at_;      // by value: -1: none
  std::vector<bool> sum_needed_, is_per_expert_;   // by value
  std::vector<std::vector<bool>> part_needed_;     // by device, value
  std::vector<std::vector<bool>> runs_;            // by device, node
  std::vector<std::vector<IndexRanges>> elems_;    // by device, value
};

}  // namespace zinc
