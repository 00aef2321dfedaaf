// Chooses which matmuls are split by columns, and which columns each device gets (ShardLayout): whole blocks of the
// weights' format and whole heads, as evenly as they allow. A device gets none if there are fewer than devices.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "graph/shard_layout.h"

namespace zinc {

class ShardDivider {
 public:
  ShardDivider(const Graph& graph, ShardLayout& layout);
  void divide();

 private:
  // What lies between a matmul and the matmuls that its input is computed from.
  struct Chain {
    size_t matmul = 0;               // node
    int attention = -1, delta = -1;  // node, -1: none
  };
  // Nodes that read and write one attention cache. Its heads are divided in the same way for all of them.
  struct CacheUse {
    std::vector<size_t> attentions;
    std::vector<Chain> chains;  // one for each of them, or the heads are not divided
  };
  bool trace(Value v, Chain& chain) const;
  void divide_elements(const Chain& chain);
  void divide_attention(const CacheUse& use);
  bool share_key_heads(const CacheUse& use, int64_t n_key_heads);
  void divide_delta(const Chain& chain);
  int64_t block_elems(size_t matmul) const;
  // Boundaries of the parts: that of device d is the indices d to d + 1 of the result.
  std::vector<int64_t> bounds(int64_t n_units, int64_t n_parts) const;

  const Graph& graph_;
  ShardLayout& layout_;
  std::vector<int> producers_;  // by value; -1: none
};

}  // namespace zinc
