// Whether several GPUs generate faster with whole layers each or with a part of every layer (tensor parallelism):
// estimated from measured rates of their memory and of the sums between them.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "engine/model_instance.h"
#include "graph/shard_graph.h"

namespace zinc {

// Of one token of one sequence, at the start of its context.
struct SplitTimes {
  double layers_s = 0, tensor_s = 0;  // with the sums, and the hops from device to device
  double sum_s = 0;                   // of one sum
  int n_sums = 0;
  bool is_tensor_faster() const { return tensor_s < layers_s; }
};

// `read_bytes_per_s`: of each device. REQUIRES: all rates are positive.
SplitTimes estimate_split_times(const Graph& graph, const ShardedGraph& shards,
                                std::span<const double> read_bytes_per_s, double sum_s);
// Bytes of weights and cache that a device reads for a token.
double bytes_per_token(const ShardedGraph& shards, size_t device);

// Measures the devices. Fails if their rates are not known.
Result<SplitTimes> measure_split_times(const Model& model, const ShardedGraph& shards,
                                       std::span<const ModelDevice> devices);
std::string split_times_text(const SplitTimes& times);

}  // namespace zinc
