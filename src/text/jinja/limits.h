// Resource limits of one rendering. Templates are untrusted: every loop, string and nesting level is counted, and
// exceeding a limit is an Error, never a hang or an abort. Limits grow with the input, so that long conversations fit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zinc::jinja {

struct Limits {
  // One step is one AST node, one item or 64 bytes of text processed: 15 to 40 ns each.
  uint64_t steps = 1'500'000;
  uint64_t steps_per_input_value = 2'000;  // some templates scan all messages for each message
  uint64_t max_steps = 100'000'000;
  // All strings, lists and scopes ever allocated; nothing is freed before the end.
  uint64_t memory_bytes = 32u << 20;
  uint64_t memory_per_input_value = 4096;
  uint64_t memory_per_input_byte = 32;
  uint64_t text_bytes = 2u << 20;  // one string or list, and the output
  uint64_t text_per_input_byte = 8;
  int depth = 600;  // nested evaluation; see kLevelsPerCapture
};

constexpr int kLevelsPerCapture = 4;              // stack use of a macro call or captured block, in levels
constexpr int kMaxNesting = 100;                  // of expressions and statements in the source
constexpr int kMaxExpressionDepth = 200;          // of an expression's AST: a chain a + b + ... nests to the left
constexpr int kMaxValueDepth = 200;               // of a value printed, compared or converted from JSON
constexpr int64_t kMaxRange = 100'000;            // items of range(), as in Python's sandbox
constexpr size_t kMaxTemplateBytes = 256u << 10;  // published templates have up to 30 KiB
constexpr size_t kBytesPerStep = 64;
constexpr size_t kSearchBytesPerStep = 16;  // for byte-wise searches
constexpr size_t kNamesPerStep = 8;         // for linear name lookups

}  // namespace zinc::jinja
