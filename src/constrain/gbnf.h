// Grammars as text, in the notation that llama.cpp's users write (GBNF):
//   root ::= "[" (number ("," number)*)? "]"
//   number ::= [0-9]+   # a comment
// Literals, [classes], any character (.), groups, alternatives, * + ? {n} {n,} {n,m}. The text starts with `root`.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

Result<Grammar> parse_gbnf(std::string_view text);  // an error names line and column

}  // namespace zinc
