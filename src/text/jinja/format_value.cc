// Formats one value by a FormatSpec.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

constexpr int kMaxPrecision = 400;  // more digits than a double has

// Writes sign and body, padded to the width.
void append_padded(Runtime& rt, TextBuilder& out, std::string_view sign, const Text& body, const FormatSpec& spec,
                   char default_align) {
  const size_t n_body = n_chars(rt, body.bytes) + sign.size();
  const size_t n_fill = spec.width > n_body ? spec.width - n_body : 0;
  const bool zeros = spec.has_zeros && !spec.align && default_align == '>';
  const char align = spec.align ? spec.align : (zeros ? '=' : default_align);
  const size_t n_before = align == '>' ? n_fill : (align == '^' ? n_fill / 2 : 0);
  const Text fill = zeros ? Text{"0", {}} : spec.fill;
  out.append_repeated(fill, n_before);
  out.append(sign, false);
  if (align == '=') out.append_repeated(fill, n_fill);
  out.append(body);
  if (align != '=') out.append_repeated(fill, n_fill - n_before);
}

// Thousands separators in the integer part.
std::string with_commas(std::string_view digits) {
  const size_t n_whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < n_whole && (n_whole - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string real_digits(double real, const FormatSpec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (!std::isfinite(real)) return std::isnan(real) ? "nan" : "inf";
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", real, precision);
    case 'E':
      return fmt::format("{:.{}E}", real, precision);
    case 'g':
      return fmt::format("{:.{}g}", real, std::max(1, precision));
    case 'G':
      return fmt::format("{:.{}G}", real, std::max(1, precision));
    case '%':
      return fmt::format("{:.{}f}%", real * 100, precision);
    case 0:
      return spec.precision < 0 ? real_to_text(real) : fmt::format("{:.{}g}", real, std::max(1, precision));
    default:
      return fmt::format("{:.{}f}", real, precision);
  }
}

std::string integer_digits(uint64_t magnitude, const FormatSpec& spec) {
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{:x}", spec.is_alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.is_alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.is_alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.is_alternate ? "0b" : "", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

void append_number(Runtime& rt, TextBuilder& out, bool is_negative, std::string digits, const FormatSpec& spec) {
  if (spec.has_commas) digits = with_commas(digits);
  const std::string_view sign = is_negative ? "-" : (spec.sign == '+' ? "+" : (spec.sign == ' ' ? " " : ""));
  append_padded(rt, out, sign, Text{digits, {}}, spec, '>');
}

void append_text(Runtime& rt, TextBuilder& out, const Text& text, const FormatSpec& spec) {
  if (spec.precision < 0) return append_padded(rt, out, "", text, spec, '<');
  const Value cut = slice_text(rt, text, 0, byte_offset(rt, text.bytes, static_cast<size_t>(spec.precision)));
  append_padded(rt, out, "", *cut.text, spec, '<');
}

}  // namespace

void append_formatted(Runtime& rt, TextBuilder& out, const Value& value, const FormatSpec& spec) {
  static constexpr std::string_view kRealTypes = "eEfFgG%", kIntegerTypes = "dnxXob";
  if (spec.precision > kMaxPrecision || !rt.check_size(spec.width, 1)) {
    rt.fail("format: precision or width is too large");
    return;
  }
  const bool is_real_type = spec.type && kRealTypes.find(spec.type) != std::string_view::npos;
  const bool is_integer_type = spec.type && kIntegerTypes.find(spec.type) != std::string_view::npos;
  const bool is_plain_number = spec.type == 0 && value.is_number() && !value.is(Kind::boolean);
  if (spec.type && spec.type != 's' && !is_real_type && !is_integer_type) {
    rt.fail("unknown format code '{}'", spec.type);
  } else if (spec.type == 's' || (spec.type == 0 && !is_plain_number)) {
    append_text(rt, out, to_text(rt, value), spec);
  } else if (!value.is_number() || (is_integer_type && value.is(Kind::real))) {
    rt.fail("unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  } else if (is_real_type || value.is(Kind::real)) {
    const double real = to_double(value);
    append_number(rt, out, std::signbit(real) && !std::isnan(real), real_digits(std::fabs(real), spec), spec);
  } else {
    const bool is_negative = value.is_integral() && value.integer < 0;
    const uint64_t bits = value.is(Kind::big_integer) ? value.big_integer : static_cast<uint64_t>(value.integer);
    append_number(rt, out, is_negative, integer_digits(is_negative ? uint64_t{0} - bits : bits, spec), spec);
  }
}

}  // namespace zinc::jinja
