// Cost of one step of a graph: bytes read and written and FLOPs, node by node, and the roofline time on a device of
// given peak rates. Computed from shapes only: no weight byte is read.
//
// Counts the graph as it is: each node reads its inputs and writes its outputs once; weights and cache rows are read
// once per step, however many tokens use them. A backend that fuses nodes moves fewer activation bytes, never fewer
// weight or cache bytes. One FLOP is one arithmetic operation, comparison or function call.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace zinc {

// The batch of a step: n_tokens split evenly among n_seqs sequences, each with `depth` positions in the cache already
// and one row of logits. REQUIRES: n_tokens >= n_seqs >= 1, depth >= 0.
struct BatchShape {
  int64_t n_tokens = 1, n_seqs = 1, depth = 0;
  const Format* kv_format = &k_f16;
};

// Peak rates assumed by the roofline: the counterpart of DevicePeaks (backend/backend.h), which are measured. Default:
// a typical desktop processor.
struct RooflinePeaks {
  double bytes_per_s = 100e9, flops_per_s = 1e12;
};

// Doubles, because the number of experts used is an expected value.
struct Cost {
  double weight_bytes = 0;
  double activation_read_bytes = 0, activation_written_bytes = 0;
  double cache_read_bytes = 0, cache_written_bytes = 0;
  double flops = 0;

  double bytes() const;                   // all of them
  double weight_and_cache_bytes() const;  // traffic that fusion cannot avoid
  double intensity() const;               // FLOPs per byte; 0 if no bytes move
  Cost& operator+=(const Cost& other);
};

enum class Bottleneck : uint8_t { none, memory, compute };
std::string_view bottleneck_name(Bottleneck bottleneck);

struct NodeCost {
  Cost cost;
  double time_s = 0;  // the larger of bytes / bandwidth and FLOPs / speed
  Bottleneck bottleneck = Bottleneck::none;
};

// A node depends on the producers of its inputs, and on the node that last wrote the cache it reads.
struct GraphCost {
  BatchShape step;
  RooflinePeaks peaks;
  std::vector<NodeCost> nodes;  // one per node of the graph
  Cost total;
  double time_s = 0;               // of the nodes one after the other
  std::vector<int> depths;         // per node: number of nodes on the longest path that ends in it, itself included
  std::vector<int> critical_path;  // node indices of the slowest path, first to last
  double critical_time_s = 0;

  double tokens_per_s() const;        // of the nodes one after the other
  double tokens_per_s_bound() const;  // with every activation kept on chip
};
GraphCost cost_graph(const Graph& graph, const BatchShape& step, const RooflinePeaks& peaks);

// Sum over a group of nodes.
struct CostSum {
  int n_nodes = 0;
  Cost cost;
  double time_s = 0;
};
std::array<CostSum, kOpCount> sum_by_op(const Graph& graph, const GraphCost& cost);
// Entry l + 1 is layer l; entry 0 is the nodes outside the layers.
std::vector<CostSum> sum_by_layer(const Graph& graph, const GraphCost& cost);

// Expected number of experts used by at least one of n_tokens, for independent and uniform routing: E (1 - (1 - U /
// E)^T).
double expected_experts(int64_t n_experts, int64_t n_used, int64_t n_tokens);

// Bytes of all weights of the graph, each counted once.
size_t resident_weight_bytes(const Graph& graph);
// KV cache bytes of one more position in all `layers`, with windows not yet full.
size_t kv_bytes_per_token(std::span<const LayerCache> layers, const Format& kv_format);

}  // namespace zinc
