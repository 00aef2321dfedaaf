// Untrusted JSON schemas: every input is rejected with a message, or yields a grammar that a random walk can traverse.
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "constrain/json_schema.h"
#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zinc::Result<zinc::json::value> schema = zinc::parse_json({reinterpret_cast<const char*>(data), size});
  if (!schema.ok()) return 0;
  zinc::Result<zinc::Grammar> grammar = zinc::json_schema_grammar(schema.value());
  if (grammar.ok()) {
    zinc::walk_grammar(std::move(grammar.value()), static_cast<uint32_t>(size));
  } else {
    ZINC_CHECK(!grammar.error().message.empty() && zinc::is_valid_utf8(grammar.error().message));
  }
  return 0;
}
