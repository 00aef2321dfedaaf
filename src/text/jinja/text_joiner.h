// String concatenation: a + b, a ~ b ~ c. Templates build long prompts by appending to one string, which would copy it
// each time; so growing strings get spare capacity, and an append costs only the length of the new piece.
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
  // Append-only bytes and origin runs, shared by strings that are prefixes of each other.
  struct GrowBuffer {
    char* bytes = nullptr;
    size_t n_bytes = 0, bytes_capacity = 0;
    Run* runs = nullptr;
    size_t n_runs = 0, runs_capacity = 0;

    void start(Arena& arena, size_t n_bytes_wanted, size_t n_runs_wanted);
    void append(const Text& text);
    bool holds(const Text& text) const;  // `text` is the complete content
  };
  GrowBuffer& buffer_for(Arena& arena, const Text& first, size_t n_bytes, size_t n_runs);

  std::array<GrowBuffer, 8> joined_once_;  // recycled round robin
  std::array<GrowBuffer, 4> growing_;      // appended to repeatedly: have spare capacity
};

}  // namespace zinc::jinja
