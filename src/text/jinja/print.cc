#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/loop_context.h"
#include "text/unicode_case.h"

namespace zinc::jinja {
namespace {

// Python prints floats in [1e-4, 1e16) without an exponent.
constexpr int kMinFixedExponent = -4;
constexpr int kFirstLargeExponent = 16;

void append_quoted(Runtime& rt, TextBuilder& out, const Text& text, bool from_input) {
  const bool has_single = text.bytes.find('\'') != std::string_view::npos;
  const bool has_double = text.bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append({&quote, 1}, from_input);
  for_each_char(rt, text, [&](char32_t code, std::string_view bytes, bool is_input) {
    const auto number = static_cast<uint32_t>(code);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out.append("\\", is_input);
      out.append(bytes, is_input);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out.append(code == '\n' ? "\\n" : (code == '\r' ? "\\r" : "\\t"), is_input);
    } else if (is_printable(code)) {
      out.append(bytes, is_input);
    } else if (rt.charge(4)) {
      out.append(number < 0x100
                     ? fmt::format("\\x{:02x}", number)
                     : (number < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number)),
                 is_input);
    }
  });
  out.append({&quote, 1}, from_input);
}

void append_items(Runtime& rt, TextBuilder& out, const Value& value, bool from_input, int depth) {
  Items items;
  if (!items_of(rt, value, items)) return;
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) {
    if (i > 0) out.append(", ", from_input);
    append_repr(rt, out, items[i], from_input, depth + 1);
  }
}

void append_dict(Runtime& rt, TextBuilder& out, const Dict& dict, int depth) {
  out.append("{", dict.from_input);
  bool is_first = true;
  for (const Entry& entry : dict.entries) {
    if (!rt.charge(1)) return;
    if (!is_first) out.append(", ", dict.from_input);
    is_first = false;
    append_repr(rt, out, entry.key, dict.from_input, depth + 1);
    out.append(": ", dict.from_input);
    append_repr(rt, out, entry.value, dict.from_input, depth + 1);
  }
  out.append("}", dict.from_input);
}

void append_namespace(Runtime& rt, TextBuilder& out, Namespace& ns, int depth) {
  out.append("<Namespace {", false);
  for (size_t i = 0; i < ns.attributes.size() && rt.charge(1); ++i) {
    const NamedValue attribute = ns.attributes.view()[i];
    if (i > 0) out.append(", ", false);
    append_quoted(rt, out, *attribute.name, false);
    out.append(": ", false);
    append_repr(rt, out, attribute.value, false, depth + 1);
  }
  out.append("}>", false);
}

std::string range_to_text(const Range& range) {
  return range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                         : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
}

// Values with equal str() and repr() that contain no strings.
std::string plain_to_text(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.integer ? "True" : "False";
    case Kind::integer:
      return fmt::format("{}", value.integer);
    case Kind::big_integer:
      return fmt::format("{}", value.big_integer);
    case Kind::real:
      return real_to_text(value.real);
    case Kind::range:
      return range_to_text(*value.range);
    case Kind::macro:
      return fmt::format("<Macro '{}'>", value.macro->node->name);
    case Kind::builtin:
      return fmt::format("<function {}>", value.builtin->name);
    case Kind::method:
      return fmt::format("<built-in method {} of {} object>", value.method->function->name,
                         type_name(value.method->self));
    case Kind::loop:
      return fmt::format("<LoopContext {}/{}>", value.loop->attribute(rt, "index").integer,
                         value.loop->attribute(rt, "length").integer);
    case Kind::generator:
      return "<generator object>";
    default:
      return "Undefined";
  }
}

// The shortest digits that round-trip, and the exponent of the first one.
struct Decimal {
  std::string digits;
  int exponent;
};

Decimal shortest_decimal(double real) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, real, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  Decimal decimal{{}, 0};
  std::copy_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(e), std::back_inserter(decimal.digits),
               [](char c) { return c != '.'; });
  const std::string_view exponent = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), decimal.exponent);
  return decimal;
}

}  // namespace

std::string real_to_text(double real) {
  if (std::isnan(real)) return "nan";
  if (std::isinf(real)) return real < 0 ? "-inf" : "inf";
  const std::string sign = std::signbit(real) ? "-" : "";
  Decimal decimal = shortest_decimal(std::fabs(real));
  std::string& digits = decimal.digits;
  const int exponent = decimal.exponent;
  if (exponent < kMinFixedExponent || exponent >= kFirstLargeExponent) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "", digits.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const size_t n_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < n_whole + 1) digits.resize(n_whole + 1, '0');
  return fmt::format("{}{}.{}", sign, digits.substr(0, n_whole), digits.substr(n_whole));
}

void append_repr(Runtime& rt, TextBuilder& out, const Value& value, bool from_input, int depth) {
  if (depth > kMaxValueDepth) rt.fail("value is nested too deeply to be printed");
  if (rt.failed()) return;
  switch (value.kind) {
    case Kind::text:
      if (value.text->is_markup) out.append("Markup(", from_input);
      append_quoted(rt, out, *value.text, from_input);
      if (value.text->is_markup) out.append(")", from_input);
      return;
    case Kind::list:
      out.append("[", value.list->from_input);
      append_items(rt, out, value, value.list->from_input, depth);
      return out.append("]", value.list->from_input);
    case Kind::tuple:
      out.append("(", from_input);
      append_items(rt, out, value, from_input, depth);
      return out.append(value.list->items.size() == 1 ? ",)" : ")", from_input);
    case Kind::dict:
      return append_dict(rt, out, *value.dict, depth);
    case Kind::view:
      out.append(type_name(value), false);
      out.append("([", value.view->dict->from_input);
      append_items(rt, out, value, value.view->dict->from_input, depth);
      return out.append("])", value.view->dict->from_input);
    case Kind::namespace_:
      return append_namespace(rt, out, *value.ns, depth);
    default:
      return out.append(plain_to_text(rt, value), from_input);
  }
}

void append_str(Runtime& rt, TextBuilder& out, const Value& value) {
  if (value.is(Kind::text)) return out.append(*value.text);
  if (!value.is(Kind::undefined)) append_repr(rt, out, value);
}

Value to_repr(Runtime& rt, const Value& value) {
  TextBuilder text(rt);
  append_repr(rt, text, value);
  return text.finish();
}

const Text& to_text(Runtime& rt, const Value& value) {
  static const Text kEmpty{{}, {}};
  if (value.is(Kind::text)) return *value.text;
  if (value.is(Kind::undefined)) return kEmpty;
  TextBuilder builder(rt);
  append_repr(rt, builder, value);
  const Value text = builder.finish();
  return text.is(Kind::text) ? *text.text : kEmpty;
}

Text escape_html(Runtime& rt, const Text& text) {
  if (text.is_markup) return text;
  TextBuilder escaped(rt);
  for_each_run(text, 0, text.bytes.size(), [&](std::string_view piece, bool from_input) {
    while (!piece.empty()) {
      const size_t plain = std::min(piece.find_first_of("&<>'\""), piece.size());
      escaped.append(piece.substr(0, plain), from_input);
      piece.remove_prefix(plain);
      if (piece.empty()) return;
      const char c = piece[0];
      escaped.append(c == '&'   ? "&amp;"
                     : c == '<' ? "&lt;"
                     : c == '>' ? "&gt;"
                     : c == '"' ? "&#34;"
                                : "&#39;",
                     from_input);
      piece.remove_prefix(1);
    }
  });
  const Value value = escaped.finish(true);
  return value.is(Kind::text) ? *value.text : Text{{}, {}};
}

}  // namespace zinc::jinja
