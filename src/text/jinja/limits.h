// What one rendering may use. A template is untrusted: every loop, text and nesting level is counted, and running out
// ends in an Error, never in a hang or an abort. Amounts grow with the input, so that long conversations fit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zinc::jinja {

struct Limits {
  // One step is one node of the template run, one item or 64 bytes of text looked at: 15 to 40 ns each.
  uint64_t steps = 1'500'000;
  uint64_t steps_per_input_value = 2'000;  // templates that look back over all messages at each one exist
  uint64_t most_steps = 100'000'000;
  // All texts, lists and scopes ever made; nothing is freed before the end.
  uint64_t memory_bytes = 32u << 20;
  uint64_t memory_per_input_value = 4096;
  uint64_t memory_per_input_byte = 32;
  uint64_t text_bytes = 2u << 20;  // one text or list, and the output
  uint64_t text_per_input_byte = 8;
  int depth = 600;  // nested evaluation; macro calls count several times
};

constexpr int kLevelsPerCapture = 4;  // a macro call or captured block needs as much stack as so many levels of others
constexpr int kMaxNesting = 100;      // of expressions and statements in the template's text
constexpr int kMaxExpressionDepth = 200;          // of an expression's tree: a chain a + b + ... nests to the left
constexpr int kMaxValueDepth = 200;               // of a value printed, compared or taken from JSON
constexpr int64_t kMaxRange = 100'000;            // items of range(), as in Python's sandbox
constexpr size_t kMaxTemplateBytes = 256u << 10;  // published ones have up to 30 KiB
constexpr size_t kBytesPerStep = 64;
constexpr size_t kSearchBytesPerStep = 16;  // looked at one by one
constexpr size_t kNamesPerStep = 8;         // looked through for one of them

}  // namespace zinc::jinja
