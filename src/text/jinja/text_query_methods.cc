// String methods that query: 'abc'.startswith('a'), .find(), .isdigit(), ...
#include <algorithm>

#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

// The byte range given by the optional arguments start and end.
struct SearchRange {
  size_t begin = 0, end = 0;
  bool is_valid = true;  // false: start > end; not even '' is found
};

SearchRange search_range(Runtime& rt, const Text& text, const Args& args, size_t first_arg) {
  SearchRange range{0, text.bytes.size()};
  if (!args.has(first_arg) && !args.has(first_arg + 1)) return range;
  const int64_t n = static_cast<int64_t>(n_chars(rt, text.bytes));
  const auto clamp = [n](int64_t at) { return std::clamp<int64_t>(at < 0 ? std::max(-n, at) + n : at, 0, n); };
  const int64_t start = integer_arg(rt, args, first_arg, 0), stop = integer_arg(rt, args, first_arg + 1, n);
  range.is_valid = start <= n && clamp(start) <= clamp(stop);
  range.begin = byte_offset(rt, text.bytes, static_cast<size_t>(clamp(start)));
  range.end = std::max(range.begin, byte_offset(rt, text.bytes, static_cast<size_t>(clamp(stop))));
  return range;
}

Value matches_end(Runtime& rt, Self self, const Args& args, bool at_start) {
  const SearchRange range = search_range(rt, *self.text, args, 1);
  const std::string_view part = self.text->bytes.substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& wanted) {
    const std::string_view bytes = text_arg(rt, wanted).bytes;
    if (!rt.charge(1) || !rt.charge_comparison(part, bytes)) return false;
    return range.is_valid && (at_start ? part.starts_with(bytes) : part.ends_with(bytes));
  };
  if (!args[0].is(Kind::tuple)) return Value(matches(args[0]));
  const std::span<const Value> any = args[0].list->items;
  return Value(std::any_of(any.begin(), any.end(), matches));
}
Value startswith(Runtime& rt, Self self, const Args& args) { return matches_end(rt, self, args, true); }
Value endswith(Runtime& rt, Self self, const Args& args) { return matches_end(rt, self, args, false); }

int64_t position(Runtime& rt, Self self, const Args& args, bool from_right) {
  const std::string_view wanted = text_arg(rt, args[0]).bytes;
  const SearchRange range = search_range(rt, *self.text, args, 1);
  const std::string_view part = self.text->bytes.substr(range.begin, range.end - range.begin);
  const size_t at = from_right ? rfind_text(rt, part, wanted) : find_text(rt, part, wanted, 0);
  if (at == std::string_view::npos || !range.is_valid) return -1;
  return static_cast<int64_t>(n_chars(rt, self.text->bytes.substr(0, range.begin + at)));
}

Value find(Runtime& rt, Self self, const Args& args) { return Value(position(rt, self, args, false)); }
Value rfind(Runtime& rt, Self self, const Args& args) { return Value(position(rt, self, args, true)); }

Value index(Runtime& rt, Self self, const Args& args) {
  const int64_t at = position(rt, self, args, false);
  return at < 0 ? rt.fail("substring not found") : Value(at);
}
Value rindex(Runtime& rt, Self self, const Args& args) {
  const int64_t at = position(rt, self, args, true);
  return at < 0 ? rt.fail("substring not found") : Value(at);
}

Value count(Runtime& rt, Self self, const Args& args) {
  const std::string_view wanted = text_arg(rt, args[0]).bytes;
  const SearchRange range = search_range(rt, *self.text, args, 1);
  const std::string_view part = self.text->bytes.substr(range.begin, range.end - range.begin);
  if (!range.is_valid) return Value(int64_t{0});
  if (wanted.empty()) return Value(static_cast<int64_t>(n_chars(rt, part)) + 1);
  int64_t n = 0;
  for (size_t at = 0; rt.charge(1); ++n) {
    const size_t found = find_text(rt, part, wanted, at);
    if (found == std::string_view::npos) break;
    at = found + wanted.size();
  }
  return Value(n);
}

template <bool (*kHolds)(char32_t)>
Value all_are(Runtime& rt, Self self, const Args&) {
  bool holds = !self.text->bytes.empty();
  for_each_char(rt, *self.text, [&](char32_t code, std::string_view, bool) { holds = holds && kHolds(code); });
  return Value(holds);
}

bool is_alphanumeric(char32_t code) { return is_alpha(code) || is_numeric(code) || is_decimal(code) || is_digit(code); }
bool is_ascii(char32_t code) { return code < 0x80; }

// All cased letters satisfy `is_wanted`, and there is at least one.
Value is_in_case(Runtime& rt, Self self, bool (*is_wanted)(char32_t)) {
  bool has_cased = false, all_wanted = true;
  for_each_char(rt, *self.text, [&](char32_t code, std::string_view, bool) {
    if (!is_cased(code)) return;
    has_cased = true;
    all_wanted = all_wanted && is_wanted(code);
  });
  return Value(has_cased && all_wanted);
}
Value isupper(Runtime& rt, Self self, const Args&) { return is_in_case(rt, self, is_upper); }
Value islower(Runtime& rt, Self self, const Args&) { return is_in_case(rt, self, is_lower); }

// Every word starts with an upper-case letter, followed by lower-case letters only.
Value istitle(Runtime& rt, Self self, const Args&) {
  bool is_inside = false, has_cased = false, holds = true;
  for_each_char(rt, *self.text, [&](char32_t code, std::string_view, bool) {
    const bool begins_word = is_cased(code) && !is_lower(code);
    holds = holds && (begins_word ? !is_inside : (!is_lower(code) || is_inside));
    is_inside = is_cased(code);
    has_cased = has_cased || is_inside;
  });
  return Value(holds && has_cased);
}

Value isascii(Runtime& rt, Self self, const Args& args) {
  return self.text->bytes.empty() ? Value(true) : all_are<is_ascii>(rt, self, args);
}

constexpr Builtin kMethods[] = {
    {"startswith", startswith, "prefix start end", 1},
    {"endswith", endswith, "suffix start end", 1},
    {"find", find, "sub start end", 1},
    {"rfind", rfind, "sub start end", 1},
    {"index", index, "sub start end", 1},
    {"rindex", rindex, "sub start end", 1},
    {"count", count, "sub start end", 1},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isspace", all_are<is_space>},
    {"isascii", isascii},
    {"isupper", isupper},
    {"islower", islower},
    {"istitle", istitle},
};

}  // namespace

std::span<const Builtin> text_query_methods() { return kMethods; }

}  // namespace zinc::jinja
