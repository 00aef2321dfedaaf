// JSON's numbers between two bounds, digit by digit. However wide the bounds are, digits come to an end: a model that
// may write another digit after each one may never stop.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

// A double tells all integers of up to 15 digits apart, and most of 16; its fraction needs no more either.
constexpr int kMostDigits = 16;
constexpr int64_t kMostInteger = 9'999'999'999'999'999;

// REQUIRES: low <= high.
GrammarBuilder::Expr integer_between(GrammarBuilder& builder, int64_t low, int64_t high);

// A number without bounds; exponents stay within what a double can hold.
GrammarBuilder::Expr any_number(GrammarBuilder& builder);

struct NumberBound {
  double value;
  bool is_open = false;  // not itself one of the numbers
};
// Without exponents. Fails where a bound has too many digits for that, and where nothing lies between them.
Result<GrammarBuilder::Expr> number_between(GrammarBuilder& builder, NumberBound low, NumberBound high);

}  // namespace zinc
