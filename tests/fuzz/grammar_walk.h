// Random walk through a grammar along allowed bytes, until the text is complete.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "constrain/automaton.h"

namespace zinc {

// A random byte, or the first allowed one after it.
inline Automaton::State random_step(Automaton& automaton, Automaton::State state, uint32_t& random) {
  random = random * 1664525 + 1013904223;
  const auto first = static_cast<uint8_t>(random >> 24);
  for (int i = 0; i < 256; ++i) {
    const Automaton::State next = automaton.next(state, static_cast<uint8_t>(first + i));
    if (next != Automaton::kDeadState || automaton.budget_exceeded()) return next;
  }
  return Automaton::kDeadState;
}

inline void walk_grammar(Grammar grammar, uint32_t seed) {
  constexpr int kSteps = 300;
  Automaton automaton(std::move(grammar));
  automaton.set_work_budget(1 << 18);
  Automaton::State state = automaton.start();
  for (int i = 0; i < kSteps && !automaton.budget_exceeded() && !automaton.must_end(state); ++i) {
    state = random_step(automaton, state, seed);
    ZINC_CHECK(state != Automaton::kDeadState || automaton.budget_exceeded());
  }
}

}  // namespace zinc
