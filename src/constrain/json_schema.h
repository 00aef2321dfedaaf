// Compiles JSON Schema (2020-12, plus the spellings of draft 4, draft 7 and OpenAPI) to a grammar of its documents. The
// grammar never allows text that the schema forbids, with three exceptions: oneOf is treated as anyOf, `uniqueItems` is
// enforced for elements with an enumerated set of values only, and `minProperties` counts a name that occurs twice
// twice. Grammar::unenforced names the first two where they apply. It may forbid text that the schema allows:
// properties come in the schema's order, then additional ones; unique elements come in the order of their `enum`;
// `properties` without `additionalProperties` allows no others, `prefixItems` without `items` no further elements; a
// type-specific keyword without `type` implies that type. Digits, lengths and white space are bounded. Any other
// unsupported keyword is an error that gives its name and path.
#pragma once

#include <functional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "constrain/grammar.h"
#include "constrain/json_grammar.h"
#include "text/tool_schema.h"

namespace zinc {

// Any JSON object.
Result<Grammar> json_object_grammar();
Result<Grammar> json_schema_grammar(const json::value& schema);

// These add rules to a larger grammar. After a failure the builder must not be used.
Result<GrammarBuilder::Rule> add_json_schema(GrammarBuilder& builder, const JsonGrammar& json,
                                             const json::value& schema);
// The same, for objects only.
Result<GrammarBuilder::Rule> add_json_object_schema(GrammarBuilder& builder, const JsonGrammar& json,
                                                    const json::value& schema);

// An object as a list of parameters, each a name and a value between tags. Strings are written as raw text; whether a
// parameter is a string is decided by its types, as XmlCallReader does.
struct ParameterSyntax {
  std::string_view before_name, before_value, after_value;
  RawStrings text;
  std::function<ParameterTypes(std::string_view parameter)> types;
};
Result<GrammarBuilder::Rule> add_parameter_schema(GrammarBuilder& builder, const JsonGrammar& json,
                                                  const json::value& schema, const ParameterSyntax& syntax);

}  // namespace zinc
