// A walk through a grammar along bytes that may come: it goes on until the text may end.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "constrain/automaton.h"

namespace zinc {

// The byte that a generator of random numbers says, or the first after it that may come.
inline Automaton::State random_step(Automaton& automaton, Automaton::State state, uint32_t& random) {
  random = random * 1664525 + 1013904223;
  const auto first = static_cast<uint8_t>(random >> 24);
  for (int i = 0; i < 256; ++i) {
    const Automaton::State next = automaton.next(state, static_cast<uint8_t>(first + i));
    if (next != Automaton::kNowhere || automaton.is_lost()) return next;
  }
  return Automaton::kNowhere;
}

inline void walk_grammar(Grammar grammar, uint32_t seed) {
  constexpr int kSteps = 300;
  Automaton automaton(std::move(grammar));
  automaton.set_patience(1 << 18);
  Automaton::State state = automaton.start();
  for (int i = 0; i < kSteps && !automaton.is_lost() && !automaton.must_end(state); ++i) {
    state = random_step(automaton, state, seed);
    ZINC_CHECK(state != Automaton::kNowhere || automaton.is_lost());
  }
}

}  // namespace zinc
