#include "graph/memory_plan.h"

#include <algorithm>
#include <map>

namespace zinc {
namespace {

constexpr size_t kAlignElems = 16;  // 64 bytes: a cache line

// A view has no storage of its own: its root is its input's root.
std::vector<int32_t> storage_roots(const Graph& graph) {
  std::vector<int32_t> storage_root(static_cast<size_t>(graph.n_values()));
  for (size_t i = 0; i < storage_root.size(); ++i) storage_root[i] = static_cast<int32_t>(i);
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::view)
      storage_root[static_cast<size_t>(node.out[0].id)] = storage_root[static_cast<size_t>(node.in[0].id)];
  }
  return storage_root;
}

std::vector<int> last_uses(const Graph& graph, const std::vector<int32_t>& storage_root, int n_nodes,
                           std::span<const ExtendedUse> extended_uses) {
  std::vector<int> last(storage_root.size(), -1);
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (Value v : node.in) {
      if (v) last[static_cast<size_t>(storage_root[static_cast<size_t>(v.id)])] = i;
    }
    for (Value v : node.out) {
      if (v) last[static_cast<size_t>(storage_root[static_cast<size_t>(v.id)])] = i;
    }
  }
  for (const ExtendedUse& use : extended_uses) {
    int& node = last[static_cast<size_t>(storage_root[static_cast<size_t>(use.value.id)])];
    node = std::max(node, use.node);
  }
  for (Value v : {graph.logits(), graph.hidden()}) {  // read by the host after the step
    if (v) last[static_cast<size_t>(storage_root[static_cast<size_t>(v.id)])] = n_nodes;
  }
  return last;
}

// First-fit free list over an arena that grows at its end.
class Arena {
 public:
  size_t allocate(size_t n) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < n) continue;
      const auto [offset, length] = *it;
      free_.erase(it);
      if (length > n) free_.emplace(offset + n, length - n);
      return offset;
    }
    const size_t offset = size_;
    size_ += n;
    return offset;
  }
  void release(size_t offset, size_t n) {
    auto [it, inserted] = free_.emplace(offset, n);
    if (auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin()) {
      auto previous = std::prev(it);
      if (previous->first + previous->second == it->first) {
        previous->second += it->second;
        free_.erase(it);
      }
    }
  }
  size_t size() const { return size_; }

 private:
  std::map<size_t, size_t> free_;  // offset -> length
  size_t size_ = 0;
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, int max_tokens, int max_outputs, bool keep_all,
                       std::span<const ExtendedUse> extended_uses) {
  const int n_nodes = static_cast<int>(graph.nodes().size());
  const std::vector<int32_t> storage_root = storage_roots(graph);
  const std::vector<int> last = last_uses(graph, storage_root, n_nodes, extended_uses);
  const auto length = [&](size_t id) {
    const ValueInfo& info = graph.info(Value{static_cast<int32_t>(id)});
    const size_t rows = static_cast<size_t>(info.rows == Rows::outputs ? max_outputs : max_tokens);
    const size_t n = rows * static_cast<size_t>(info.shape.elems());
    return (n + kAlignElems - 1) / kAlignElems * kAlignElems;
  };
  std::vector<std::vector<size_t>> last_used_at(static_cast<size_t>(n_nodes) + 1);
  MemoryPlan plan;
  plan.offsets.resize(storage_root.size());
  Arena arena;
  for (int i = 0; i < n_nodes; ++i) {
    for (Value v : graph.nodes()[static_cast<size_t>(i)].out) {
      if (!v) continue;
      const size_t id = static_cast<size_t>(v.id);
      const size_t own = static_cast<size_t>(storage_root[id]);
      if (own != id) {
        plan.offsets[id] = plan.offsets[own];
        continue;
      }
      plan.offsets[id] = arena.allocate(length(id));
      if (!keep_all) last_used_at[static_cast<size_t>(last[id])].push_back(id);
    }
    for (size_t id : last_used_at[static_cast<size_t>(i)]) arena.release(plan.offsets[id], length(id));
  }
  plan.n_elems = arena.size();
  return plan;
}

}  // namespace zinc
