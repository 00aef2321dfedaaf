// JSON schemas (2020-12, and what draft 7 and OpenAPI write otherwise) as grammars of their documents. A grammar never
// allows what the schema forbids. It may forbid what the schema allows: properties come in the schema's order, then
// others; none but `properties` where these are given without `additionalProperties`, and no elements behind
// `prefixItems` without `items`; keywords about one type without a `type` mean that type; oneOf is read as anyOf.
// Digits and white space are bounded. A keyword that constrains and cannot be kept is refused by name and path.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

// Any JSON object.
Result<Grammar> json_object_grammar();
Result<Grammar> json_schema_grammar(const json::value& schema);

}  // namespace zinc
