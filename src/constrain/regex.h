// Regular expressions as JSON schemas write them (`pattern`; ECMA 262 with the u flag), as grammars of what stands
// between the quotes of a JSON string: a character that a JSON string must escape is written as its escape. As there, a
// pattern may match anywhere in the string unless it says ^ and $. Look-around, back references, \b and \p are refused.
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

// Refuses length limits where more than one part of the pattern would have to give way.
Result<GrammarBuilder::Expr> regex_grammar(GrammarBuilder& builder, std::string_view pattern,
                                           const LengthLimits& limits = {});

// One character of these, as a JSON string has it.
GrammarBuilder::Expr char_in_json_string(GrammarBuilder& builder, const CharRanges& ranges);

}  // namespace zinc
