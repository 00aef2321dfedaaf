#include "constrain/automaton.h"

#include <algorithm>
#include <utility>

namespace zinc {
namespace {

constexpr size_t kMaxBytes = size_t{96} << 20;
constexpr size_t kNodeBytes = 64, kStateBytes = 1200;  // including the hash tables
constexpr size_t kScansPerWorkUnit = 16;               // nodes whose byte set does not match

size_t hash_of(const std::vector<int32_t>& nodes, bool may_end) {
  size_t hash = may_end ? 1469598103934665603u : 14695981039346656037u;
  for (const int32_t node : nodes) hash = (hash ^ static_cast<size_t>(node)) * 1099511628211u;
  return hash;
}

}  // namespace

Automaton::Automaton(Grammar grammar) : grammar_(std::move(grammar)) { compute_start(); }

void Automaton::reset() {
  nodes_.clear();
  node_ids_.clear();
  visited_.clear();
  states_.clear();
  transitions_.clear();
  state_ids_.clear();
  n_bytes_ = 0;
  budget_exceeded_ = false;
  work_left_ = kInitialWorkBudget;
  compute_start();
}

void Automaton::compute_start() {
  ++epoch_;
  for (const int32_t alternative : grammar_.rules[static_cast<size_t>(grammar_.root)]) expand(alternative, kEnd);
  start_ = intern_reached();
}

int32_t Automaton::intern_node(int32_t element, int32_t return_to) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(element)} << 32 | static_cast<uint32_t>(return_to);
  const auto [found, is_new] = node_ids_.try_emplace(key, static_cast<int32_t>(nodes_.size()));
  if (is_new) {
    n_bytes_ += kNodeBytes;
    nodes_.push_back({element, return_to});
    visited_.push_back(0);
  }
  return found->second;
}

// Collects every node that reads bytes and is reachable without reading one (the epsilon closure). A rule in tail
// position does not push a return node, so that a repetition returns to the same node each time.
void Automaton::expand(int32_t element, int32_t return_to) {
  to_visit_.assign(1, intern_node(element, return_to));
  while (!to_visit_.empty()) {
    const int32_t at = to_visit_.back();
    to_visit_.pop_back();
    if (std::exchange(visited_[static_cast<size_t>(at)], epoch_) == epoch_) continue;
    if (n_bytes_ > kMaxBytes || --work_left_ < 0) budget_exceeded_ = true;
    if (budget_exceeded_) return;
    const StackNode node = nodes_[static_cast<size_t>(at)];
    const Grammar::Element& grammar_element = grammar_.elements[static_cast<size_t>(node.element)];
    if (grammar_element.kind == Grammar::Kind::bytes) {
      reached_.push_back(at);
      continue;
    }
    if (grammar_element.kind == Grammar::Kind::end) {
      if (node.return_to == kEnd) {
        reached_end_ = true;
      } else {
        to_visit_.push_back(node.return_to);
      }
      continue;
    }
    const bool is_last = grammar_.elements[static_cast<size_t>(node.element) + 1].kind == Grammar::Kind::end;
    const int32_t next_return = is_last ? node.return_to : intern_node(node.element + 1, node.return_to);
    const std::vector<int32_t>& alternatives = grammar_.rules[static_cast<size_t>(grammar_element.index)];
    work_left_ -= static_cast<int64_t>(alternatives.size());
    for (const int32_t alternative : alternatives) {
      to_visit_.push_back(intern_node(alternative, next_return));
    }
  }
}

Automaton::State Automaton::intern_reached() {
  const bool may_end = std::exchange(reached_end_, false);
  std::vector<int32_t> nodes = std::exchange(reached_, {});
  if (nodes.empty() && !may_end) return kDeadState;
  std::ranges::sort(nodes);
  const size_t hash = hash_of(nodes, may_end);
  for (auto [found, end] = state_ids_.equal_range(hash); found != end; ++found) {
    const StateInfo& known = states_[static_cast<size_t>(found->second)];
    if (known.may_end == may_end && known.nodes == nodes) return found->second;
  }
  n_bytes_ += kStateBytes + nodes.size() * sizeof(int32_t);
  const auto state = static_cast<State>(states_.size());
  states_.push_back({std::move(nodes), may_end});
  transitions_.emplace_back().fill(kNotComputed);
  state_ids_.emplace(hash, state);
  return state;
}

Automaton::State Automaton::compute_step(State state, uint8_t byte) {
  if (budget_exceeded_) return kDeadState;
  ++epoch_;
  const size_t n = states_[static_cast<size_t>(state)].nodes.size();
  work_left_ -= static_cast<int64_t>(n / kScansPerWorkUnit);
  ByteSet equivalent = ByteSet().set();  // bytes that the same nodes read
  for (size_t i = 0; i < n; ++i) {
    const StackNode from = nodes_[static_cast<size_t>(states_[static_cast<size_t>(state)].nodes[i])];
    const Grammar::Element& what = grammar_.elements[static_cast<size_t>(from.element)];
    const ByteSet& bytes = grammar_.byte_sets[static_cast<size_t>(what.index)];
    equivalent &= bytes[byte] ? bytes : ~bytes;
    if (bytes[byte]) expand(from.element + 1, from.return_to);
  }
  budget_exceeded_ = budget_exceeded_ || work_left_ < 0 || n_bytes_ > kMaxBytes;
  const State found = intern_reached();
  if (budget_exceeded_) return kDeadState;
  std::array<State, 256>& row = transitions_[static_cast<size_t>(state)];
  for (size_t other = 0; other < row.size(); ++other) {
    if (equivalent[other]) row[other] = found;
  }
  return found;
}

}  // namespace zinc
