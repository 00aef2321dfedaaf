// Reads a text byte by byte and knows what may come next, as a grammar says. A state is the set of all places of the
// grammar that the text so far may have led to, each with the places to go back to. States and steps between them are
// found when they are first asked for and kept, so that a byte costs a table look-up nearly always. One thread.
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
  static constexpr State kNowhere = -1;  // no text of the grammar begins like this

  explicit Automaton(Grammar grammar);

  State start() const { return start_; }
  State next(State state, uint8_t byte) {  // REQUIRES: state is not kNowhere
    const State known = steps_[static_cast<size_t>(state)][byte];
    return known != kUnknown ? known : find_step(state, byte);
  }
  bool may_end(State state) const { return states_[static_cast<size_t>(state)].may_end; }
  bool must_end(State state) const { return states_[static_cast<size_t>(state)].places.empty(); }
  size_t n_states() const { return states_.size(); }
  size_t n_bytes() const { return n_bytes_; }  // that it takes, about
  void forget();                               // all states but the start
  // How many places of the grammar may be looked at from now on, to find steps that are not known yet.
  void set_patience(int64_t n_looks) { n_looks_left_ = n_looks; }
  // Steps were given up, so that kNowhere may be wrong: the grammar has too many ways to read the text.
  bool is_lost() const { return is_lost_; }

 private:
  static constexpr State kUnknown = -2;
  static constexpr int64_t kLooksAtFirst = 1 << 20;
  // An element of the grammar, and where to go on behind its sequence. Equal places have equal numbers.
  struct Place {
    int32_t element, back;
  };
  static constexpr int32_t kEnd = -1;  // to go back to: the text is over
  struct Known {
    std::vector<int32_t> places;  // that stand before bytes, ascending
    bool may_end;
  };

  void find_start();
  State find_step(State state, uint8_t byte);
  int32_t place(int32_t element, int32_t back);
  void reach(int32_t element, int32_t back);
  State state_of_reached();

  const Grammar grammar_;
  std::vector<Place> places_;
  std::unordered_map<uint64_t, int32_t> place_numbers_;
  std::vector<Known> states_;
  std::vector<std::array<State, 256>> steps_;
  std::unordered_multimap<size_t, State> state_numbers_;  // by hash
  State start_ = kNowhere;
  size_t n_bytes_ = 0;
  bool is_lost_ = false;
  int64_t n_looks_left_ = kLooksAtFirst;

  // Of the step that is being found.
  std::vector<int32_t> reached_;
  std::vector<int32_t> to_visit_;
  std::vector<uint32_t> visited_;  // per place: the turn it was visited in
  uint32_t turn_ = 0;
  bool reached_end_ = false;
};

}  // namespace zinc
