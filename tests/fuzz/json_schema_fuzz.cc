// JSON schemas from outside: any is refused with a message or becomes a grammar that can be walked through to an end.
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
