// Joins whole texts: a + b, a ~ b ~ c. Templates build long prompts by joining piece after piece to one text, which
// would copy all of it each time; so room is kept behind texts that grow, and the next piece costs only its own length.
#pragma once

#include <array>
#include <span>

#include "text/jinja/value.h"

namespace zinc::jinja {

class Runtime;

class TextJoiner {
 public:
  Value join(Runtime& rt, std::span<const Text* const> texts, bool is_markup = false);

 private:
  // Bytes and runs of one or more texts, each the beginning of the next. What is written stays; more follows it.
  struct Place {
    char* bytes = nullptr;
    size_t n_bytes = 0, n_bytes_room = 0;
    Run* runs = nullptr;
    size_t n_runs = 0, n_runs_room = 0;

    void start(Arena& arena, size_t n_bytes_wanted, size_t n_runs_wanted);
    void append(const Text& text);
    bool ends_with(const Text& text) const;  // is `text` all there is here?
  };
  Place& place_for(Arena& arena, const Text& first, size_t n_bytes, size_t n_runs);

  std::array<Place, 8> joined_once_;  // used in turn
  std::array<Place, 4> growing_;      // joined to again: have room
};

}  // namespace zinc::jinja
