// A graph as bytes, for another process of the same program. Weights are not part of it: of each, where its bytes lie.
#pragma once

#include <functional>

#include "base/blob.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

// Bytes of a file that all processes have mapped.
struct WeightLocation {
  uint32_t file = 0, shard = 0;
  uint64_t begin = 0, n_bytes = 0;
};

using LocateWeight = std::function<Result<WeightLocation>(const TensorView&)>;
using FindWeight = std::function<Result<std::span<const std::byte>>(const WeightLocation&)>;

Status write_graph(const Graph& graph, const LocateWeight& locate, BlobWriter& out);
Result<Graph> read_graph(BlobReader& in, const FindWeight& find);

}  // namespace zinc
