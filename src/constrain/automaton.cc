#include "constrain/automaton.h"

#include <algorithm>
#include <utility>

namespace zinc {
namespace {

constexpr size_t kMostBytes = size_t{96} << 20;
constexpr size_t kPlaceBytes = 64, kStateBytes = 1200;  // with what finds them
constexpr size_t kScannedPerLook = 16;                  // places whose byte is not the one that came

size_t hash_of(const std::vector<int32_t>& places, bool may_end) {
  size_t hash = may_end ? 1469598103934665603u : 14695981039346656037u;
  for (const int32_t place : places) hash = (hash ^ static_cast<size_t>(place)) * 1099511628211u;
  return hash;
}

}  // namespace

Automaton::Automaton(Grammar grammar) : grammar_(std::move(grammar)) { find_start(); }

void Automaton::forget() {
  places_.clear();
  place_numbers_.clear();
  visited_.clear();
  states_.clear();
  steps_.clear();
  state_numbers_.clear();
  n_bytes_ = 0;
  is_lost_ = false;
  n_looks_left_ = kLooksAtFirst;
  find_start();
}

void Automaton::find_start() {
  ++turn_;
  for (const int32_t alternative : grammar_.rules[static_cast<size_t>(grammar_.root)]) reach(alternative, kEnd);
  start_ = state_of_reached();
}

int32_t Automaton::place(int32_t element, int32_t back) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(element)} << 32 | static_cast<uint32_t>(back);
  const auto [found, is_new] = place_numbers_.try_emplace(key, static_cast<int32_t>(places_.size()));
  if (is_new) {
    n_bytes_ += kPlaceBytes;
    places_.push_back({element, back});
    visited_.push_back(0);
  }
  return found->second;
}

// All places before bytes that can be come to from here without one. A rule that stands last in its sequence leaves
// nothing to go back to there, so that a repetition is at the same place each time.
void Automaton::reach(int32_t element, int32_t back) {
  to_visit_.assign(1, place(element, back));
  while (!to_visit_.empty()) {
    const int32_t at = to_visit_.back();
    to_visit_.pop_back();
    if (std::exchange(visited_[static_cast<size_t>(at)], turn_) == turn_) continue;
    if (n_bytes_ > kMostBytes || --n_looks_left_ < 0) is_lost_ = true;
    if (is_lost_) return;
    const Place here = places_[static_cast<size_t>(at)];
    const Grammar::Element& what = grammar_.elements[static_cast<size_t>(here.element)];
    if (what.kind == Grammar::Kind::bytes) {
      reached_.push_back(at);
      continue;
    }
    if (what.kind == Grammar::Kind::end) {
      if (here.back == kEnd) {
        reached_end_ = true;
      } else {
        to_visit_.push_back(here.back);
      }
      continue;
    }
    const bool is_last = grammar_.elements[static_cast<size_t>(here.element) + 1].kind == Grammar::Kind::end;
    const int32_t behind = is_last ? here.back : place(here.element + 1, here.back);
    const std::vector<int32_t>& alternatives = grammar_.rules[static_cast<size_t>(what.index)];
    n_looks_left_ -= static_cast<int64_t>(alternatives.size());
    for (const int32_t alternative : alternatives) {
      to_visit_.push_back(place(alternative, behind));
    }
  }
}

Automaton::State Automaton::state_of_reached() {
  const bool may_end = std::exchange(reached_end_, false);
  std::vector<int32_t> places = std::exchange(reached_, {});
  if (places.empty() && !may_end) return kNowhere;
  std::ranges::sort(places);
  const size_t hash = hash_of(places, may_end);
  for (auto [found, end] = state_numbers_.equal_range(hash); found != end; ++found) {
    const Known& known = states_[static_cast<size_t>(found->second)];
    if (known.may_end == may_end && known.places == places) return found->second;
  }
  n_bytes_ += kStateBytes + places.size() * sizeof(int32_t);
  const auto state = static_cast<State>(states_.size());
  states_.push_back({std::move(places), may_end});
  steps_.emplace_back().fill(kUnknown);
  state_numbers_.emplace(hash, state);
  return state;
}

Automaton::State Automaton::find_step(State state, uint8_t byte) {
  if (is_lost_) return kNowhere;
  ++turn_;
  const size_t n = states_[static_cast<size_t>(state)].places.size();
  n_looks_left_ -= static_cast<int64_t>(n / kScannedPerLook);
  for (size_t i = 0; i < n; ++i) {
    const Place from = places_[static_cast<size_t>(states_[static_cast<size_t>(state)].places[i])];
    const Grammar::Element& what = grammar_.elements[static_cast<size_t>(from.element)];
    if (grammar_.byte_sets[static_cast<size_t>(what.index)][byte]) reach(from.element + 1, from.back);
  }
  is_lost_ = is_lost_ || n_looks_left_ < 0 || n_bytes_ > kMostBytes;
  const State found = state_of_reached();
  if (is_lost_) return kNowhere;
  return steps_[static_cast<size_t>(state)][byte] = found;
}

}  // namespace zinc
