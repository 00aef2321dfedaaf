// For tests of grammars: whether a text is of one, and texts drawn from one at random.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/automaton.h"

namespace zinc {

class GrammarTexts {
 public:
  explicit GrammarTexts(Grammar grammar) : automaton_(std::move(grammar)) {}

  bool has(std::string_view text) {
    const Automaton::State state = state_after(text);
    return state != Automaton::kNowhere && automaton_.may_end(state);
  }
  bool has_one_that_begins(std::string_view text) { return state_after(text) != Automaton::kNowhere; }
  Automaton& automaton() { return automaton_; }

  // Ends as soon as it may from `enough_bytes` on; nothing where that comes too late.
  std::optional<std::string> draw(std::mt19937& random, size_t enough_bytes) {
    std::string text;
    for (Automaton::State state = automaton_.start(); text.size() < enough_bytes + 2000;) {
      const bool is_enough = text.size() >= enough_bytes;
      if (automaton_.may_end(state) && (is_enough || automaton_.must_end(state) || random() % 4 == 0)) return text;
      text += static_cast<char>(draw_byte(random, state, is_enough));
      state = automaton_.next(state, static_cast<uint8_t>(text.back()));
    }
    return std::nullopt;
  }

 private:
  Automaton::State state_after(std::string_view text) {
    Automaton::State state = automaton_.start();
    for (const char byte : text) {
      if (state != Automaton::kNowhere) state = automaton_.next(state, static_cast<uint8_t>(byte));
    }
    return state;
  }

  // Mostly ASCII, and what closes something where it is time.
  uint8_t draw_byte(std::mt19937& random, Automaton::State state, bool is_enough) {
    std::vector<uint8_t> all, ascii;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton_.next(state, static_cast<uint8_t>(byte)) == Automaton::kNowhere) continue;
      all.push_back(static_cast<uint8_t>(byte));
      if (byte < 0x80) ascii.push_back(static_cast<uint8_t>(byte));
    }
    ZINC_CHECK(!all.empty());  // whatever may come leads to an end
    std::vector<uint8_t> closing;
    for (const uint8_t byte : ascii) {
      if (byte == '}' || byte == ']' || byte == '"') closing.push_back(byte);
    }
    if (!closing.empty() && is_enough == (random() % 8 != 0)) return closing[random() % closing.size()];
    const std::vector<uint8_t>& from = ascii.empty() || random() % 8 == 0 ? all : ascii;
    return from[random() % from.size()];
  }

  Automaton automaton_;
};

}  // namespace zinc
