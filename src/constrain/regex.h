// Compiles regular expressions of JSON Schema (`pattern`; ECMA-262 with the u flag) to grammars of a JSON string's
// contents: a character that must be escaped there is written as its escape. A pattern is not anchored unless it has ^
// and $. \p{..} knows L, N, M, P, S, Z and parts of Lu, Ll and Nd. Lookaround and backreferences are not supported.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

struct LengthLimits {  // in characters
  int64_t min = 0;
  int64_t max = GrammarBuilder::kNoLimit;
};

// How the characters of the string are written.
enum class StringSyntax : uint8_t {
  json,   // with escapes
  raw,    // as they are, but without '<', which could begin the marker that ends the string
  plain,  // as they are
};

// Fails if the length limits would have to be split over more than one variable-length part of the pattern.
Result<GrammarBuilder::Expr> regex_grammar(GrammarBuilder& builder, std::string_view pattern,
                                           const LengthLimits& limits = {}, StringSyntax syntax = StringSyntax::json);

// The texts that match the whole pattern, as they are: not in a JSON string.
Result<Grammar> regex_text_grammar(std::string_view pattern);

// One of these characters, as written in a JSON string.
GrammarBuilder::Expr char_in_json_string(GrammarBuilder& builder, const CharRanges& ranges);

}  // namespace zinc
