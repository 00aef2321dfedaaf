#include "graph/memory_plan.h"

#include <algorithm>
#include <map>

namespace zinc {
namespace {

constexpr size_t kAlignElems = 16;  // 64 bytes: a cache line

// A view has no storage of its own: it lives where its input lives.
std::vector<int32_t> storage_owners(const Graph& graph) {
  std::vector<int32_t> owner(static_cast<size_t>(graph.n_values()));
  for (size_t i = 0; i < owner.size(); ++i) owner[i] = static_cast<int32_t>(i);
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::view) owner[static_cast<size_t>(node.out[0].id)] = owner[static_cast<size_t>(node.in[0].id)];
  }
  return owner;
}

std::vector<int> last_uses(const Graph& graph, const std::vector<int32_t>& owner, int n_nodes,
                           std::span<const LaterUse> later_uses) {
  std::vector<int> last(owner.size(), -1);
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (Value v : node.in) {
      if (v) last[static_cast<size_t>(owner[static_cast<size_t>(v.id)])] = i;
    }
    for (Value v : node.out) {
      if (v) last[static_cast<size_t>(owner[static_cast<size_t>(v.id)])] = i;
    }
  }
  for (const LaterUse& use : later_uses) {
    int& node = last[static_cast<size_t>(owner[static_cast<size_t>(use.value.id)])];
    node = std::max(node, use.node);
  }
  for (Value v : {graph.logits(), graph.hidden()}) {  // read by the host after the step
    if (v) last[static_cast<size_t>(owner[static_cast<size_t>(v.id)])] = n_nodes;
  }
  return last;
}

// First-fit free list over an arena that grows at its end.
class Arena {
 public:
  size_t take(size_t n) {
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
  void give_back(size_t offset, size_t n) {
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
                       std::span<const LaterUse> later_uses) {
  const int n_nodes = static_cast<int>(graph.nodes().size());
  const std::vector<int32_t> owner = storage_owners(graph);
  const std::vector<int> last = last_uses(graph, owner, n_nodes, later_uses);
  const auto length = [&](size_t id) {
    const ValueInfo& info = graph.info(Value{static_cast<int32_t>(id)});
    const size_t rows = static_cast<size_t>(info.rows == Rows::outputs ? max_outputs : max_tokens);
    const size_t n = rows * static_cast<size_t>(info.shape.elems());
    return (n + kAlignElems - 1) / kAlignElems * kAlignElems;
  };
  std::vector<std::vector<size_t>> dying(static_cast<size_t>(n_nodes) + 1);
  MemoryPlan plan;
  plan.offsets.resize(owner.size());
  Arena arena;
  for (int i = 0; i < n_nodes; ++i) {
    for (Value v : graph.nodes()[static_cast<size_t>(i)].out) {
      if (!v) continue;
      const size_t id = static_cast<size_t>(v.id);
      const size_t own = static_cast<size_t>(owner[id]);
      if (own != id) {
        plan.offsets[id] = plan.offsets[own];
        continue;
      }
      plan.offsets[id] = arena.take(length(id));
      if (!keep_all) dying[static_cast<size_t>(last[id])].push_back(id);
    }
    for (size_t id : dying[static_cast<size_t>(i)]) arena.give_back(plan.offsets[id], length(id));
  }
  plan.n_elems = arena.size();
  return plan;
}

}  // namespace zinc
