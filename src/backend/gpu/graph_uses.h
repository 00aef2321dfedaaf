// Definition and uses of the values of a graph. A view shares the memory of its input: the value that owns the memory
// is the storage root, and readers of a view count as readers of the root. The graph must outlive it.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace zinc::gpu {

class GraphUses {
 public:
  // With `keeps_values` (Bucket::keep_values) the host may read every value after the step.
  GraphUses(const Graph& graph, bool keeps_values);

  int32_t storage_root(Value v) const { return storage_roots_[static_cast<size_t>(v.id)]; }
  bool is_same(Value a, Value b) const { return storage_root(a) == storage_root(b); }
  const Node* producer(Value v) const { return producers_[static_cast<size_t>(storage_root(v))]; }  // nullptr: a weight
  // In graph order, without views; a node that reads v twice is listed twice.
  const std::vector<const Node*>& readers(Value v) const { return readers_[static_cast<size_t>(storage_root(v))]; }
  bool is_host_read(Value v) const { return is_host_read_[static_cast<size_t>(storage_root(v))]; }
  const Node* only_reader(Value v) const;  // nullptr: none, several, or the host reads it too
  int index_of(const Node& node) const { return static_cast<int>(&node - graph_.nodes().data()); }

 private:
  const Graph& graph_;
  std::vector<int32_t> storage_roots_;             // per value
  std::vector<const Node*> producers_;             // per value
  std::vector<std::vector<const Node*>> readers_;  // per storage root
  std::vector<bool> is_host_read_;                 // per storage root
};

}  // namespace zinc::gpu
