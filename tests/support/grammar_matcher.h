// For tests of grammars: matches texts against a grammar, and samples random texts from it.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/automaton.h"

namespace zinc {

class GrammarMatcher {
 public:
  explicit GrammarMatcher(Grammar grammar) : automaton_(std::move(grammar)) {}

  bool matches(std::string_view text) {
    const Automaton::State state = state_after(text);
    return state != Automaton::kDeadState && automaton_.may_end(state);
  }
  bool accepts_prefix(std::string_view text) { return state_after(text) != Automaton::kDeadState; }
  Automaton& automaton() { return automaton_; }

  // Ends as soon as the grammar allows once it has `min_bytes`; nullopt if that takes too long. `markers` that end a
  // text are long: random bytes do not hit them.
  std::optional<std::string> sample(std::mt19937& random, size_t min_bytes,
                                    const std::vector<std::string>& markers = {}) {
    std::string text;
    for (Automaton::State state = automaton_.start(); text.size() < min_bytes + 2000;) {
      const bool is_long_enough = text.size() >= min_bytes;
      if (automaton_.may_end(state) && (is_long_enough || automaton_.must_end(state) || random() % 4 == 0)) return text;
      const Automaton::State marked = random() % 4 == 0 ? append_marker(state, markers, text) : state;
      if (marked != state) {
        state = marked;
        continue;
      }
      text += static_cast<char>(sample_byte(random, state, is_long_enough));
      state = automaton_.next(state, static_cast<uint8_t>(text.back()));
    }
    return std::nullopt;
  }

 private:
  Automaton::State state_after(std::string_view text) {
    Automaton::State state = automaton_.start();
    for (const char byte : text) {
      if (state != Automaton::kDeadState) state = automaton_.next(state, static_cast<uint8_t>(byte));
    }
    return state;
  }

  Automaton::State append_marker(Automaton::State from, const std::vector<std::string>& markers, std::string& text) {
    for (const std::string& marker : markers) {
      Automaton::State state = from;
      for (const char byte : marker) {
        if (state != Automaton::kDeadState) state = automaton_.next(state, static_cast<uint8_t>(byte));
      }
      if (state == Automaton::kDeadState) continue;
      text += marker;
      return state;
    }
    return from;
  }

  // Prefers ASCII, and closing brackets once the text is long enough.
  uint8_t sample_byte(std::mt19937& random, Automaton::State state, bool is_long_enough) {
    std::vector<uint8_t> all, ascii;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton_.next(state, static_cast<uint8_t>(byte)) == Automaton::kDeadState) continue;
      all.push_back(static_cast<uint8_t>(byte));
      if (byte < 0x80) ascii.push_back(static_cast<uint8_t>(byte));
    }
    ZINC_CHECK(!all.empty());  // every live state has a way to the end
    std::vector<uint8_t> closing;
    for (const uint8_t byte : ascii) {
      if (byte == '}' || byte == ']' || byte == '"') closing.push_back(byte);
    }
    if (!closing.empty() && is_long_enough == (random() % 8 != 0)) return closing[random() % closing.size()];
    const std::vector<uint8_t>& from = ascii.empty() || random() % 8 == 0 ? all : ascii;
    return from[random() % from.size()];
  }

  Automaton automaton_;
};

}  // namespace zinc
