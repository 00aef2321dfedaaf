#include "constrain/number_range.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;

Expr digits(GrammarBuilder& builder, char first, char last) {
  return builder.chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}
Expr some_digits(GrammarBuilder& builder, int min, int max) {
  return builder.repeat(digits(builder, '0', '9'), min, max);
}

// Digit strings between two others, compared like digits after a decimal point: shorter ones are padded with zeros.
struct DigitBounds {
  std::string low = {}, high = {};
  bool is_low_open = false, is_high_open = false;
  int min_digits = 0, max_digits = kMaxDigits;
};

class DigitRangeBuilder {
 public:
  DigitRangeBuilder(GrammarBuilder& builder, const DigitBounds& bounds) : builder_(builder), bounds_(bounds) {}

  // The digits from the i-th on; a bound is tight if all digits before equal it.
  Expr write(int i, bool is_low_tight, bool is_high_tight) {
    if (!bounds_.is_low_open && is_over(bounds_.low, i)) is_low_tight = false;  // any continuation is greater
    if (!bounds_.is_high_open && is_most(i)) is_high_tight = false;
    if (!is_low_tight && !is_high_tight) {
      return some_digits(builder_, std::max(0, bounds_.min_digits - i), bounds_.max_digits - i);
    }
    std::vector<Expr> alternatives;
    if (may_end(i, is_low_tight, is_high_tight)) alternatives.push_back(builder_.text(""));
    if (i < bounds_.max_digits) add_digits(i, is_low_tight, is_high_tight, alternatives);
    return builder_.choice(std::move(alternatives));
  }

 private:
  static char digit(const std::string& of, int i) {
    return i < static_cast<int>(of.size()) ? of[static_cast<size_t>(i)] : '0';
  }
  static bool is_over(const std::string& of, int i) {
    return of.find_first_not_of('0', std::min(static_cast<size_t>(i), of.size())) == std::string::npos;
  }
  bool is_most(int i) const {
    return static_cast<int>(bounds_.high.size()) == bounds_.max_digits &&
           bounds_.high.find_first_not_of('9', static_cast<size_t>(i)) == std::string::npos;
  }

  bool may_end(int i, bool is_low_tight, bool is_high_tight) const {
    if (i < bounds_.min_digits) return false;
    if (is_low_tight && (!is_over(bounds_.low, i) || bounds_.is_low_open)) return false;
    return !is_high_tight || !is_over(bounds_.high, i) || !bounds_.is_high_open;
  }

  void add_digits(int i, bool is_low_tight, bool is_high_tight, std::vector<Expr>& alternatives) {
    char first = is_low_tight ? digit(bounds_.low, i) : '0';
    char last = is_high_tight ? digit(bounds_.high, i) : '9';
    const auto add = [&](char from, char to, bool low, bool high) {
      alternatives.push_back(builder_.sequence({digits(builder_, from, to), write(i + 1, low, high)}));
    };
    if (first == last) return add(first, first, is_low_tight, is_high_tight);
    if (is_low_tight) add(first, first, true, false), ++first;
    if (is_high_tight) add(last, last, false, true), --last;
    if (first <= last) add(first, last, false, false);
  }

  GrammarBuilder& builder_;
  const DigitBounds& bounds_;
};

Expr digits_between(GrammarBuilder& builder, const DigitBounds& bounds) {
  return DigitRangeBuilder(builder, bounds).write(0, true, true);
}

// One alternative per number of digits, since JSON has no leading zeros.
Expr natural_between(GrammarBuilder& builder, uint64_t low, uint64_t high) {
  std::vector<Expr> alternatives;
  if (low == 0) alternatives.push_back(builder.text("0"));
  const std::string first = std::to_string(std::max<uint64_t>(low, 1)), last = std::to_string(high);
  int min_full_length = 0, max_full_length = 0;  // lengths for which every number is within the bounds
  for (size_t n = first.size(); n <= last.size() && high > 0; ++n) {
    std::string lowest(n, '0');
    const std::string highest(n, '9');
    lowest.front() = '1';
    const std::string from = n == first.size() ? first : lowest, to = n == last.size() ? last : highest;
    const auto length = static_cast<int>(n);
    if (from == lowest && to == highest) {
      if (min_full_length == 0) min_full_length = length;
      max_full_length = length;
    } else {
      alternatives.push_back(
          digits_between(builder, {.low = from, .high = to, .min_digits = length, .max_digits = length}));
    }
  }
  if (max_full_length > 0) {
    alternatives.push_back(
        builder.sequence({digits(builder, '1', '9'), some_digits(builder, min_full_length - 1, max_full_length - 1)}));
  }
  return builder.choice(std::move(alternatives));
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

struct Decimal {
  uint64_t integer = 0;
  std::string fraction = {};
  bool is_open = false;
};

std::optional<Decimal> decimal(double value, bool is_open) {
  std::array<char, 400> digits;  // enough for the smallest double
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), std::fabs(value), std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string text(digits.data(), end);
  const size_t point = std::min(text.find('.'), text.size());
  Decimal out = {.integer = std::strtoull(text.c_str(), nullptr, 10), .is_open = is_open};
  if (point < text.size()) out.fraction = text.substr(point + 1);
  if (out.fraction.find_first_not_of('0') == std::string::npos) out.fraction.clear();
  return out.integer > static_cast<uint64_t>(kMaxInteger) || out.fraction.size() > size_t{kMaxDigits}
             ? std::nullopt
             : std::optional(out);
}

// Numbers with one integer part; the fraction is optional where it may be zero.
Expr with_fraction(GrammarBuilder& builder, Expr integer_part, DigitBounds bounds) {
  std::vector<Expr> alternatives;
  const bool may_be_zero = bounds.low.empty() && !bounds.is_low_open && !(bounds.high.empty() && bounds.is_high_open);
  if (may_be_zero) alternatives.push_back(integer_part);
  bounds.min_digits = 1;
  alternatives.push_back(builder.sequence({integer_part, builder.text("."), digits_between(builder, bounds)}));
  return builder.choice(std::move(alternatives));
}

Expr positive_between(GrammarBuilder& builder, const Decimal& low, const Decimal& high) {
  constexpr const char* kNines = "9999999999999999";
  const DigitBounds above = {.low = low.fraction, .high = kNines, .is_low_open = low.is_open};
  const DigitBounds below = {.high = high.fraction, .is_high_open = high.is_open};
  const auto integer_part = [&](uint64_t from, uint64_t to) { return natural_between(builder, from, to); };
  if (low.integer == high.integer) {
    return with_fraction(
        builder, integer_part(low.integer, low.integer),
        {.low = low.fraction, .high = high.fraction, .is_low_open = low.is_open, .is_high_open = high.is_open});
  }
  std::vector<Expr> alternatives = {with_fraction(builder, integer_part(low.integer, low.integer), above)};
  if (high.integer - low.integer > 1) {
    alternatives.push_back(with_fraction(builder, integer_part(low.integer + 1, high.integer - 1), {.high = kNines}));
  }
  const bool is_empty_range = high.fraction.empty() && high.is_open;
  if (!is_empty_range) alternatives.push_back(with_fraction(builder, integer_part(high.integer, high.integer), below));
  return builder.choice(std::move(alternatives));
}

}  // namespace

Expr integer_between(GrammarBuilder& builder, int64_t low, int64_t high) {
  std::vector<Expr> alternatives;
  if (high >= 0) {
    alternatives.push_back(natural_between(builder, magnitude(std::max<int64_t>(low, 0)), magnitude(high)));
  }
  if (low < 0) {
    const uint64_t min_magnitude = high < 0 ? magnitude(high) : 1;
    alternatives.push_back(
        builder.sequence({builder.text("-"), natural_between(builder, min_magnitude, magnitude(low))}));
  }
  return builder.choice(std::move(alternatives));
}

Expr any_number(GrammarBuilder& builder) {
  const Expr integer_part = natural_between(builder, 0, static_cast<uint64_t>(kMaxInteger));
  const Expr fraction = builder.sequence({builder.text("."), some_digits(builder, 1, kMaxDigits)});
  const Expr sign = builder.optional(builder.chars({{'+', '+'}, {'-', '-'}}));
  const Expr exponent = builder.sequence({builder.chars({{'E', 'E'}, {'e', 'e'}}), sign, some_digits(builder, 1, 2)});
  return builder.sequence(
      {builder.optional(builder.text("-")), integer_part, builder.optional(fraction), builder.optional(exponent)});
}

Result<Expr> number_between(GrammarBuilder& builder, NumberBound low, NumberBound high) {
  if (low.value > high.value || (low.value == high.value && (low.is_open || high.is_open))) {
    return fail(ErrorCode::invalid_input, "no number satisfies the bounds");
  }
  const double limit = static_cast<double>(kMaxInteger - 1);
  low.value = std::max(low.value, -limit);
  high.value = std::min(high.value, limit);
  const std::optional<Decimal> from = decimal(low.value, low.is_open), to = decimal(high.value, high.is_open);
  if (!from || !to || low.value > high.value) {
    return fail(ErrorCode::unsupported, "number bounds must have at most {} digits before and after the decimal point",
                kMaxDigits);
  }
  std::vector<Expr> alternatives;
  if (high.value >= 0) alternatives.push_back(positive_between(builder, low.value >= 0 ? *from : Decimal{}, *to));
  if (low.value < 0) {
    const Decimal min_magnitude = high.value < 0 ? *to : Decimal{.is_open = true};
    alternatives.push_back(builder.sequence({builder.text("-"), positive_between(builder, min_magnitude, *from)}));
  }
  return builder.choice(std::move(alternatives));
}

}  // namespace zinc
