#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "constrain/number_range.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
constexpr uint64_t kMaxModulus = 512;     // one rule per remainder and number of digits
constexpr uint64_t kMaxListed = 1 << 12;  // multiples that are listed one by one
constexpr int kMaxDecimals = 6;

// Numbers with `n_decimals` digits after the point, as integers without the point.
struct MultipleRange {
  uint64_t divisor, low, high;
  int n_decimals;
};

std::string with_point(uint64_t number, int n_decimals) {
  std::string digits = std::to_string(number);
  if (n_decimals == 0) return digits;
  const auto n = static_cast<size_t>(n_decimals);
  if (digits.size() <= n) digits.insert(0, n + 1 - digits.size(), '0');
  return fmt::format("{}.{}", digits.substr(0, digits.size() - n), digits.substr(digits.size() - n));
}

// Writes the digits of multiples one by one and keeps the remainder of the digits so far.
class MultipleBuilder {
 public:
  MultipleBuilder(GrammarBuilder& builder, const MultipleRange& range) : builder_(builder), range_(range) {}

  Expr write() {
    std::vector<Expr> alternatives;
    const auto min_digits = static_cast<size_t>(range_.n_decimals) + 1;
    const size_t max_digits = std::max(std::to_string(range_.high).size(), min_digits);
    uint64_t first = 1;  // the least number with n digits
    for (size_t n = 1; n <= max_digits; ++n, first *= 10) {
      if (n < min_digits) continue;
      const uint64_t least = std::max(range_.low, n == min_digits ? 0 : first);
      const uint64_t most = n == max_digits ? range_.high : std::min(range_.high, first * 10 - 1);
      if (least > most) continue;
      low_ = padded(least, n);
      high_ = padded(most, n);
      alternatives.push_back(bounded(0, 0, true, true));
    }
    return builder_.choice(std::move(alternatives));
  }

 private:
  static std::string padded(uint64_t number, size_t n_digits) {
    const std::string digits = std::to_string(number);
    return std::string(n_digits - digits.size(), '0') + digits;
  }

  Expr digit(char first, char last, size_t n_left) {
    const Expr one = builder_.chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
    const bool is_before_point = range_.n_decimals > 0 && n_left == static_cast<size_t>(range_.n_decimals);
    return is_before_point ? builder_.sequence({one, builder_.text(".")}) : one;
  }

  // The digits from the i-th on, of a number whose digits so far equal those of a bound.
  Expr bounded(size_t i, uint64_t remainder, bool is_low_tight, bool is_high_tight) {
    const size_t n_left = low_.size() - i;
    if (n_left == 0 || (!is_low_tight && !is_high_tight)) return any(n_left, remainder);
    std::vector<Expr> alternatives;
    const char first = is_low_tight ? low_[i] : '0', last = is_high_tight ? high_[i] : '9';
    for (char d = first; d <= last; ++d) {
      const uint64_t next = (remainder * 10 + static_cast<uint64_t>(d - '0')) % range_.divisor;
      const Expr rest = bounded(i + 1, next, is_low_tight && d == first, is_high_tight && d == last);
      alternatives.push_back(builder_.sequence({digit(d, d, n_left - 1), rest}));
    }
    return builder_.choice(std::move(alternatives));
  }

  Expr any(size_t n_left, uint64_t remainder) {
    if (n_left == 0) return remainder == 0 ? builder_.text("") : builder_.choice({});
    const auto [found, is_new] = rules_.try_emplace({n_left, remainder});
    if (!is_new) return builder_.rule(found->second);
    const Rule rule = found->second = builder_.declare("digits");
    std::vector<Expr> alternatives;
    for (char d = '0'; d <= '9'; ++d) {
      const uint64_t next = (remainder * 10 + static_cast<uint64_t>(d - '0')) % range_.divisor;
      alternatives.push_back(builder_.sequence({digit(d, d, n_left - 1), any(n_left - 1, next)}));
    }
    builder_.define(rule, builder_.choice(std::move(alternatives)));
    return builder_.rule(rule);
  }

  GrammarBuilder& builder_;
  const MultipleRange range_;
  std::string low_, high_;  // bounds of the numbers with the same count of digits
  std::map<std::pair<size_t, uint64_t>, Rule> rules_;
};

Result<Expr> multiples(GrammarBuilder& builder, MultipleRange range) {
  const uint64_t first = (range.low + range.divisor - 1) / range.divisor, last = range.high / range.divisor;
  if (range.low > range.high || first > last) return builder.choice({});
  if (last - first < kMaxListed && (range.divisor > 1 || last - first < 64)) {
    std::vector<Expr> alternatives;
    for (uint64_t i = first; i <= last; ++i) {
      alternatives.push_back(builder.text(with_point(i * range.divisor, range.n_decimals)));
    }
    return builder.choice(std::move(alternatives));
  }
  std::string zeros;
  while (range.n_decimals == 0 && range.divisor % 10 == 0) {  // the last digits are zeros
    range = {.divisor = range.divisor / 10, .low = (range.low + 9) / 10, .high = range.high / 10, .n_decimals = 0};
    zeros += '0';
  }
  if (range.divisor > kMaxModulus) {
    return fail(ErrorCode::unsupported, "\"multipleOf\" above {} is supported only with bounds that leave {} multiples",
                kMaxModulus, kMaxListed);
  }
  const bool has_zero = range.low == 0 && !zeros.empty();
  if (has_zero) range.low = 1;
  const Expr number = builder.sequence({MultipleBuilder(builder, range).write(), builder.text(zeros)});
  return has_zero ? builder.choice({builder.text("0"), number}) : number;
}

// Multiples from `low` to `high`, which may be negative.
Result<Expr> signed_multiples(GrammarBuilder& builder, uint64_t divisor, int64_t low, int64_t high, int n_decimals) {
  std::vector<Expr> alternatives;
  if (high >= 0) {
    ZINC_TRY(positive, multiples(builder, {.divisor = divisor,
                                           .low = static_cast<uint64_t>(std::max<int64_t>(low, 0)),
                                           .high = static_cast<uint64_t>(high),
                                           .n_decimals = n_decimals}));
    alternatives.push_back(positive);
  }
  if (low < 0) {
    ZINC_TRY(negative, multiples(builder, {.divisor = divisor,
                                           .low = static_cast<uint64_t>(high < 0 ? -high : 1),
                                           .high = static_cast<uint64_t>(-low),
                                           .n_decimals = n_decimals}));
    alternatives.push_back(builder.sequence({builder.text("-"), negative}));
  }
  return builder.choice(std::move(alternatives));
}

}  // namespace

Result<Expr> multiples_between(GrammarBuilder& builder, double divisor, NumberBound low, NumberBound high,
                               NumberKind kind) {
  std::array<char, 400> digits;
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), divisor, std::chars_format::fixed);
  std::string text(digits.data(), end);
  const size_t point = std::min(text.find('.'), text.size());
  const int n_decimals = point == text.size() ? 0 : static_cast<int>(text.size() - point - 1);
  std::erase(text, '.');
  if (error != std::errc() || n_decimals > kMaxDecimals || text.size() > size_t{kMaxDigits}) {
    return fail(ErrorCode::unsupported, "\"multipleOf\" must have at most {} decimals and {} digits", kMaxDecimals,
                kMaxDigits);
  }
  const uint64_t scaled = std::stoull(text);
  uint64_t scale = 1;
  for (int i = 0; i < n_decimals; ++i) scale *= 10;
  const auto limit = static_cast<double>(kMaxInteger);
  const auto write = [&](uint64_t modulus, uint64_t factor, int decimals) -> Result<Expr> {
    const auto f = static_cast<double>(factor);
    double from = std::ceil(std::max(low.value * f, -limit)), to = std::floor(std::min(high.value * f, limit));
    if (low.is_open && from == low.value * f) ++from;
    if (high.is_open && to == high.value * f) --to;
    if (from > to) return builder.choice({});
    return signed_multiples(builder, modulus, static_cast<int64_t>(from), static_cast<int64_t>(to), decimals);
  };
  // An integer n is a multiple of scaled / scale if n * scale is a multiple of scaled.
  ZINC_TRY(integers, write(scaled / std::gcd(scaled, scale), 1, 0));
  if (kind == NumberKind::integer || n_decimals == 0) return integers;
  ZINC_TRY(fractions, write(scaled, scale, n_decimals));
  return builder.choice({integers, fractions});
}

}  // namespace zinc
