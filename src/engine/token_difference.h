// Compares the tokens of a drafting model with those of the model that it drafts for.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace zinc {

// The first difference in number or text of the tokens; empty: none. The words "it" and "the model" name them.
std::string token_difference(const Tokenizer& draft, const Tokenizer& target);

}  // namespace zinc
