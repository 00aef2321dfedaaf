// Grammars of JSON numbers between two bounds, digit by digit. The number of digits is always bounded: otherwise a
// model could emit digits forever.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "constrain/grammar.h"

namespace zinc {

// A double represents all integers of 15 digits, and most of 16; fractions need no more either.
constexpr int kMaxDigits = 16;
constexpr int64_t kMaxInteger = 9'999'999'999'999'999;

// REQUIRES: low <= high.
GrammarBuilder::Expr integer_between(GrammarBuilder& builder, int64_t low, int64_t high);

// A number without bounds; exponents stay in the range of a double.
GrammarBuilder::Expr any_number(GrammarBuilder& builder);

struct NumberBound {
  double value;
  bool is_open = false;  // exclusive
};
// Without exponents. Fails if a bound has too many digits, or if the range is empty.
Result<GrammarBuilder::Expr> number_between(GrammarBuilder& builder, NumberBound low, NumberBound high);

enum class NumberKind : uint8_t { integer, any };
// Multiples of `divisor` between the bounds, which may be infinite; without exponents, and with as many decimals as the
// divisor or none. Fails if the divisor has too many digits, or if there is no such number.
Result<GrammarBuilder::Expr> multiples_between(GrammarBuilder& builder, double divisor, NumberBound low,
                                               NumberBound high, NumberKind kind);

}  // namespace zinc
