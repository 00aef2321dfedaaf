// Compiles regular expressions of JSON Schema (`pattern`; ECMA-262 with the u flag) to grammars of a JSON string's
// contents: a character that must be escaped there is written as its escape. A pattern is not anchored unless it has ^
// and $. Lookaround, backreferences, \b and \p are not supported.
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

// Fails if the length limits would have to be split over more than one variable-length part of the pattern.
Result<GrammarBuilder::Expr> regex_grammar(GrammarBuilder& builder, std::string_view pattern,
                                           const LengthLimits& limits = {});

// One of these characters, as written in a JSON string.
GrammarBuilder::Expr char_in_json_string(GrammarBuilder& builder, const CharRanges& ranges);

}  // namespace zinc
