// Compiles JSON Schema (2020-12, plus the spellings of draft 7 and OpenAPI) to a grammar of its documents. The grammar
// never allows text that the schema forbids. It may forbid text that the schema allows: properties come in the schema's
// order, then additional ones; `properties` without `additionalProperties` allows no others, `prefixItems` without
// `items` no further elements; a type-specific keyword without `type` implies that type; oneOf is treated as anyOf.
// Digits and white space are bounded. An unsupported constraining keyword is an error that gives its name and path.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

// Any JSON object.
Result<Grammar> json_object_grammar();
Result<Grammar> json_schema_grammar(const json::value& schema);

}  // namespace zinc
