// Untrusted GBNF: every input is rejected with a message, or yields a grammar that a random walk can traverse.
#include <string_view>

#include "base/utf8.h"
#include "constrain/gbnf.h"
#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  zinc::Result<zinc::Grammar> grammar = zinc::parse_gbnf({reinterpret_cast<const char*>(data), size});
  if (grammar.ok()) {
    zinc::walk_grammar(std::move(grammar.value()), static_cast<uint32_t>(size));
  } else {
    ZINC_CHECK(!grammar.error().message.empty() && zinc::is_valid_utf8(grammar.error().message));
  }
  return 0;
}
