// What one step of a graph reads, writes and computes, node by node, and the least time a device of given speeds needs
// for it (the roofline). Computed from shapes alone: no weight byte is read.
//
// Counted as the graph says it: each node reads its inputs and writes its outputs once, weights and cache rows are read
// once per step however many tokens use them. A backend that fuses nodes moves fewer activation bytes, never fewer
// weight or cache bytes. One FLOP is one arithmetic operation, comparison or function call.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace zinc {

// The step: n_tokens dealt to n_seqs sequences as evenly as they go, each with `depth` positions in the cache already,
// each wanting the logits of its last token. REQUIRES: n_tokens >= n_seqs >= 1, depth >= 0.
struct StepShape {
  int64_t n_tokens = 1, n_seqs = 1, depth = 0;
  const Format* kv_format = &k_f16;
};

struct DeviceSpeed {
  double bytes_per_s = 100e9, flops_per_s = 1e12;  // an ordinary desktop processor
};

// Expectations (of experts used) make these fractions.
struct Cost {
  double weight_bytes = 0;
  double activation_read_bytes = 0, activation_written_bytes = 0;
  double cache_read_bytes = 0, cache_written_bytes = 0;
  double flops = 0;

  double bytes() const;              // all of them
  double memory_only_bytes() const;  // weights and cache: what no fusion avoids
  double intensity() const;          // FLOPs per byte; 0 where no bytes move
  Cost& operator+=(const Cost& other);
};

enum class Bottleneck : uint8_t { none, memory, compute };
std::string_view bottleneck_name(Bottleneck bottleneck);

struct NodeCost {
  Cost cost;
  double time_s = 0;  // the larger of bytes over bandwidth and FLOPs over speed
  Bottleneck bottleneck = Bottleneck::none;
};

// A node waits for the nodes that made its inputs, and for the one that last wrote the cache it reads.
struct GraphCost {
  StepShape step;
  DeviceSpeed device;
  std::vector<NodeCost> nodes;  // one per node of the graph
  Cost total;
  double time_s = 0;               // of the nodes one after the other
  std::vector<int> depths;         // per node: nodes on the longest chain that ends in it, itself included
  std::vector<int> critical_path;  // node indices of the slowest chain, first to last
  double critical_time_s = 0;

  double tokens_per_s() const;        // of the nodes one after the other
  double tokens_per_s_bound() const;  // with every activation kept on the chip
};
GraphCost cost_graph(const Graph& graph, const StepShape& step, const DeviceSpeed& device);

// Sums of nodes with something in common.
struct CostSum {
  int n_nodes = 0;
  Cost cost;
  double time_s = 0;
};
std::array<CostSum, kOpCount> sum_by_op(const Graph& graph, const GraphCost& cost);
// Entry l + 1 is layer l; entry 0 is what lies outside the layers.
std::vector<CostSum> sum_by_layer(const Graph& graph, const GraphCost& cost);

// Experts that at least one of n_tokens uses, expected for independent and even choices: E (1 - (1 - U / E)^T).
double expected_experts(int64_t n_experts, int64_t n_used, int64_t n_tokens);

// Bytes of all weights of the graph, each counted once.
size_t resident_weight_bytes(const Graph& graph);
// Bytes one more position takes in all layers of `layers`, windows not yet full.
size_t kv_bytes_per_token(std::span<const LayerCache> layers, const Format& kv_format);

}  // namespace zinc
