// Number filters: int, float, round, filesizeformat.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Removes each "_" between two digits; false if there is one elsewhere.
bool drop_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_between = i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (!is_between) {
      return false;
    }
  }
  return true;
}

constexpr size_t kMaxNumberBytes = 400;  // longer strings cannot be a number that fits

// int(text, base). False: not an integer in that base, or out of range.
bool parse_integer(std::string_view text, int base, int64_t& out) {
  text = trimmed(text);
  std::string digits;  // with the sign
  if (text.size() > kMaxNumberBytes || base < 2 || base > 36) return false;
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const auto has_mark = [&](char mark) { return text.size() > 2 && text[0] == '0' && (text[1] | 32) == mark; };
  const bool is_marked = (base == 16 && has_mark('x')) || (base == 8 && has_mark('o')) || (base == 2 && has_mark('b'));
  if (is_marked) text.remove_prefix(2);
  if (is_negative) digits.push_back('-');
  if (text.empty() || text[0] == '-' || text[0] == '+' || !drop_underscores(text, digits)) return false;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
}

// float(text).
bool parse_real(std::string_view text, double& out) {
  text = trimmed(text);
  std::string digits;
  if (text.size() > kMaxNumberBytes) return false;
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text[0] == '-' || text[0] == '+' || !drop_underscores(text, digits)) return false;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (parsed.ec == std::errc::result_out_of_range) {
    out = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos ? 0 : HUGE_VAL;
  } else if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    return false;
  }
  if (is_negative) out = -out;
  return true;
}

Value truncated(Runtime& rt, double real) {
  if (!(std::fabs(real) < 9223372036854775808.0)) return rt.fail("cannot convert float {} to a 64-bit integer", real);
  return Value(static_cast<int64_t>(real));
}

Value to_int(Runtime& rt, Self self, const Args& args) {
  const Value fallback = args.has(0) ? args[0] : Value(int64_t{0});
  if (self.is(Kind::undefined)) return rt.fail_undefined(self);
  if (self.is(Kind::real)) return std::isnan(self.real) ? fallback : truncated(rt, self.real);
  if (self.is_integral()) return Value(self.integer);
  if (self.is(Kind::big_integer)) return self;
  if (!self.is(Kind::text)) return fallback;
  rt.charge(self.text->bytes.size() / kSearchBytesPerStep);
  int64_t integer = 0;
  double real = 0;
  const int64_t base = integer_arg(rt, args, 1, 10);
  if (parse_integer(self.text->bytes, static_cast<int>(std::clamp<int64_t>(base, 0, 99)), integer)) {
    return Value(integer);
  }
  if (!parse_real(self.text->bytes, real) || !std::isfinite(real)) return fallback;
  return truncated(rt, real);
}

Value to_float(Runtime& rt, Self self, const Args& args) {
  double real = 0;
  if (self.is(Kind::undefined)) return rt.fail_undefined(self);
  if (self.is_number()) return Value(to_double(self));
  if (self.is(Kind::text)) rt.charge(self.text->bytes.size() / kSearchBytesPerStep);
  if (self.is(Kind::text) && parse_real(self.text->bytes, real)) return Value(real);
  return args.has(0) ? args[0] : Value(0.0);
}

Value absolute(Runtime& rt, Self self, const Args&) {
  if (self.is(Kind::undefined)) return rt.fail_undefined(self);
  if (!self.is_number()) return rt.fail("bad operand type for abs(): '{}'", type_name(self));
  if (self.is(Kind::real)) return Value(std::fabs(self.real));
  if (self.is(Kind::big_integer) || self.integer >= 0) return negate(rt, self, true);
  return negate(rt, self, false);
}

// round() of an integer to tens, hundreds, ...: ties to even.
Value round_integer(Runtime& rt, int64_t value, int64_t precision) {
  if (precision >= 0) return Value(value);
  if (precision < -18) return Value(int64_t{0});
  int64_t unit = 1;
  for (int64_t i = 0; i > precision; --i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  int64_t floor = 0, result = 0;
  if (__builtin_sub_overflow(value, rest, &floor)) return rt.fail("round: the result does not fit in 64 bits");
  const bool goes_up = rest > unit - rest || (rest == unit - rest && (floor / unit) % 2 != 0);
  if (__builtin_add_overflow(floor, goes_up ? unit : 0, &result)) {
    return rt.fail("round: the result does not fit in 64 bits");
  }
  return Value(result);
}

double round_real(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < 0) {
    if (precision < -300) return std::copysign(0.0, value);
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  // Via decimal text, which rounds the exact value: 2.675 is slightly below, so it becomes 2.67.
  const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Value round(Runtime& rt, Self self, const Args& args) {
  const int64_t precision = integer_arg(rt, args, 0, 0);
  const std::string_view method = args.has(1) ? text_arg(rt, args[1]).bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    return rt.fail("round: method must be common, ceil or floor");
  }
  if (self.is(Kind::undefined)) return rt.fail_undefined(self);
  if (!self.is_number()) return rt.fail("type {} doesn't define __round__ method", type_name(self));
  if (method == "common") {
    if (self.is_integral()) return round_integer(rt, self.integer, precision);
    return Value(round_real(to_double(self), precision));
  }
  if (precision > 300 || precision < -300) return rt.fail("round: precision out of range");
  const double unit = std::pow(10.0, static_cast<double>(precision)), scaled = to_double(self) * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filesizeformat(Runtime& rt, Self self, const Args& args) {
  static constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr std::array kBinaryUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  const Value not_a_number[] = {Value::none()};
  const Value number = to_float(rt, self, Args{not_a_number, {}});
  if (rt.failed()) return Value();
  if (!number.is(Kind::real)) return rt.fail("filesizeformat: '{}' is not a number", type_name(self));
  const bool is_binary = flag_arg(args, 0, false);
  const double base = is_binary ? 1024 : 1000;
  if (number.real == 1) return rt.literal("1 Byte");
  if (number.real < base) return rt.text(fmt::format("{:.0f} Bytes", std::trunc(number.real)));
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < kUnits.size() && number.real >= unit; ++i) unit *= base;
  return rt.text(fmt::format("{:.1f} {}", base * number.real / unit, is_binary ? kBinaryUnits[i] : kUnits[i]));
}

constexpr Builtin kFilters[] = {
    {"int", to_int, "default base"},
    {"float", to_float, "default"},
    {"abs", absolute},
    {"round", round, "precision method"},
    {"filesizeformat", filesizeformat, "binary"},
};

}  // namespace

std::span<const Builtin> number_filters() { return kFilters; }

}  // namespace zinc::jinja
