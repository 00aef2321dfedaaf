// A lazily built automaton that reads text byte by byte and says which bytes may follow under a grammar. A state is the
// set of all pushdown configurations that the text so far may have led to (a graph-structured stack). States and
// transitions are computed when first needed and cached, so that a byte nearly always costs one table lookup.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"

namespace zinc {

class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDeadState = -1;  // no text of the grammar has this prefix

  explicit Automaton(Grammar grammar);

  State start() const { return start_; }
  State next(State state, uint8_t byte) {  // REQUIRES: state is not kDeadState
    const State known = transitions_[static_cast<size_t>(state)][byte];
    return known != kNotComputed ? known : compute_step(state, byte);
  }
  bool may_end(State state) const { return states_[static_cast<size_t>(state)].may_end; }
  bool must_end(State state) const { return states_[static_cast<size_t>(state)].nodes.empty(); }
  size_t n_states() const { return states_.size(); }
  size_t n_bytes() const { return n_bytes_; }  // approximate memory use
  void reset();                                // drops all states except the start
  // Limits the number of stack nodes expanded after this call to compute new transitions.
  void set_work_budget(int64_t n_expansions) { work_left_ = n_expansions; }
  // The grammar is too ambiguous for the text: transitions were abandoned, and kDeadState may be wrong.
  bool budget_exceeded() const { return budget_exceeded_; }

 private:
  static constexpr State kNotComputed = -2;
  static constexpr int64_t kInitialWorkBudget = 1 << 20;
  // A grammar element, and the node to return to after its sequence. Nodes are interned: equal nodes have equal ids.
  struct StackNode {
    int32_t element, return_to;
  };
  static constexpr int32_t kEnd = -1;  // return_to: the text is complete
  struct StateInfo {
    std::vector<int32_t> nodes;  // those whose element reads bytes, ascending
    bool may_end;
  };

  void compute_start();
  State compute_step(State state, uint8_t byte);
  int32_t intern_node(int32_t element, int32_t return_to);
  void expand(int32_t element, int32_t return_to);
  State intern_reached();

  const Grammar grammar_;
  std::vector<StackNode> nodes_;
  std::unordered_map<uint64_t, int32_t> node_ids_;
  std::vector<StateInfo> states_;
  std::vector<std::array<State, 256>> transitions_;
  std::unordered_multimap<size_t, State> state_ids_;  // by hash
  State start_ = kDeadState;
  size_t n_bytes_ = 0;
  bool budget_exceeded_ = false;
  int64_t work_left_ = kInitialWorkBudget;

  // Scratch of the transition being computed.
  std::vector<int32_t> reached_;
  std::vector<int32_t> to_visit_;
  std::vector<uint32_t> visited_;  // per node: the epoch of its last visit
  uint32_t epoch_ = 0;
  bool reached_end_ = false;
};

}  // namespace zinc
