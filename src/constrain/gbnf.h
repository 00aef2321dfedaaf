// Parses grammars in GBNF, llama.cpp's notation:
// root ::= "[" (number ("," number)*)? "]"
// number ::= [0-9]+   # a comment
// String literals, [character classes], any character (.), groups, alternatives, * + ? {n} {n,} {n,m}. The start rule
// is `root`.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

Result<Grammar> parse_gbnf(std::string_view text);  // an error names line and column

}  // namespace zinc
