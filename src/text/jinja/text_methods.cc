// String methods that return strings: 'abc'.upper(), .split(), .strip(), ...
#include "text/jinja/format.h"
#include "text/jinja/loop_context.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

Value upper(Runtime& rt, Self self, const Args&) { return to_case(rt, *self.text, Case::upper); }
Value lower(Runtime& rt, Self self, const Args&) { return to_case(rt, *self.text, Case::lower); }
Value title(Runtime& rt, Self self, const Args&) { return to_title(rt, *self.text); }
Value capitalized(Runtime& rt, Self self, const Args&) { return capitalize(rt, *self.text); }
Value strip_both(Runtime& rt, Self self, const Args& args) { return strip(rt, *self.text, Side::both, args[0]); }
Value strip_left(Runtime& rt, Self self, const Args& args) { return strip(rt, *self.text, Side::left, args[0]); }
Value strip_right(Runtime& rt, Self self, const Args& args) { return strip(rt, *self.text, Side::right, args[0]); }

Value swapcase(Runtime& rt, Self self, const Args&) {
  TextBuilder out(rt);
  std::string mapped;
  for_each_char(rt, *self.text, [&](char32_t code, std::string_view, bool from_input) {
    mapped.clear();
    append_in_case(mapped, code, is_upper(code) ? Case::lower : Case::upper);
    out.append(mapped, from_input);
  });
  return out.finish(self.text->is_markup);
}

Value replaced(Runtime& rt, Self self, const Args& args) {
  const Text &old = text_arg(rt, args[0]), &with = text_arg(rt, args[1]);
  const int64_t max_count = integer_arg(rt, args, 2, -1);
  if (rt.failed()) return Value();
  if (!self.text->is_markup) return replace(rt, *self.text, old, with, max_count);
  return replace(rt, *self.text, escape_html(rt, old), escape_html(rt, with), max_count);
}

Value split_side(Runtime& rt, Self self, const Args& args, bool from_right) {
  const int64_t max_splits = integer_arg(rt, args, 1, -1);
  const bool at_spaces = !args.has(0) || args[0].is(Kind::none);
  if (at_spaces) return split_at_spaces(rt, *self.text, max_splits, from_right);
  const Text& separator = text_arg(rt, args[0]);
  return rt.failed() ? Value() : split(rt, *self.text, separator, max_splits, from_right);
}
Value split_left(Runtime& rt, Self self, const Args& args) { return split_side(rt, self, args, false); }
Value split_right(Runtime& rt, Self self, const Args& args) { return split_side(rt, self, args, true); }
Value splitlines(Runtime& rt, Self self, const Args& args) {
  return split_lines(rt, *self.text, flag_arg(args, 0, false));
}

Value partition(Runtime& rt, Self self, const Args& args) {
  const Text& separator = text_arg(rt, args[0]);
  if (separator.bytes.empty()) return rt.fail("empty separator");
  const size_t at = find_text(rt, self.text->bytes, separator.bytes, 0);
  if (at == std::string_view::npos) {
    const Value parts[] = {self, rt.literal(""), rt.literal("")};
    return rt.tuple(parts);
  }
  const size_t end = at + separator.bytes.size();
  const Value parts[] = {slice_text(rt, *self.text, 0, at), slice_text(rt, *self.text, at, end),
                         slice_text(rt, *self.text, end, self.text->bytes.size())};
  return rt.tuple(parts);
}

Value rpartition(Runtime& rt, Self self, const Args& args) {
  const Text& separator = text_arg(rt, args[0]);
  if (separator.bytes.empty()) return rt.fail("empty separator");
  const size_t at = rfind_text(rt, self.text->bytes, separator.bytes);
  if (at == std::string_view::npos) {
    const Value parts[] = {rt.literal(""), rt.literal(""), self};
    return rt.tuple(parts);
  }
  const size_t end = at + separator.bytes.size();
  const Value parts[] = {slice_text(rt, *self.text, 0, at), slice_text(rt, *self.text, at, end),
                         slice_text(rt, *self.text, end, self.text->bytes.size())};
  return rt.tuple(parts);
}

Value join(Runtime& rt, Self self, const Args& args) {
  Items items;
  if (!items_of(rt, args[0], items)) return Value();
  TextBuilder out(rt);
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) {
    const Value item = items[i];
    if (!item.is(Kind::text)) {
      return rt.fail("sequence item {}: expected str instance, {} found", i, type_name(item));
    }
    if (i > 0) out.append(*self.text);
    out.append(self.text->is_markup ? escape_html(rt, *item.text) : *item.text);
  }
  return out.finish(self.text->is_markup);
}

const Text& fill_arg(Runtime& rt, const Args& args) {
  static const Text kSpace{" ", {}};
  if (!args.has(1)) return kSpace;
  const Text& fill = text_arg(rt, args[1]);
  if (n_chars(rt, fill.bytes) != 1) rt.fail("the fill character must be exactly one character long");
  return fill;
}

Value centered(Runtime& rt, Self self, const Args& args) {
  return center(rt, *self.text, integer_arg(rt, args, 0, 0), fill_arg(rt, args));
}

Value justify(Runtime& rt, Self self, const Args& args, bool to_left) {
  const int64_t width = integer_arg(rt, args, 0, 0), n = static_cast<int64_t>(n_chars(rt, self.text->bytes));
  const Text& fill = fill_arg(rt, args);
  if (width <= n) return self;
  TextBuilder out(rt);
  if (to_left) out.append(*self.text);
  out.append_repeated(fill, static_cast<size_t>(width - n));
  if (!to_left) out.append(*self.text);
  return out.finish(self.text->is_markup);
}
Value ljust(Runtime& rt, Self self, const Args& args) { return justify(rt, self, args, true); }
Value rjust(Runtime& rt, Self self, const Args& args) { return justify(rt, self, args, false); }

Value zfill(Runtime& rt, Self self, const Args& args) {
  const int64_t width = integer_arg(rt, args, 0, 0), n = static_cast<int64_t>(n_chars(rt, self.text->bytes));
  if (width <= n) return self;
  const std::string_view bytes = self.text->bytes;
  const size_t n_sign = !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+') ? 1 : 0;
  TextBuilder out(rt);
  out.append(*self.text, 0, n_sign);
  out.pad(static_cast<size_t>(width - n), "0");
  out.append(*self.text, n_sign, bytes.size());
  return out.finish(self.text->is_markup);
}

Value removeprefix(Runtime& rt, Self self, const Args& args) {
  const Text& prefix = text_arg(rt, args[0]);
  if (!rt.charge_comparison(self.text->bytes, prefix.bytes)) return Value();
  if (!self.text->bytes.starts_with(prefix.bytes)) return self;
  return slice_text(rt, *self.text, prefix.bytes.size(), self.text->bytes.size());
}

Value removesuffix(Runtime& rt, Self self, const Args& args) {
  const Text& suffix = text_arg(rt, args[0]);
  if (!rt.charge_comparison(self.text->bytes, suffix.bytes)) return Value();
  if (!self.text->bytes.ends_with(suffix.bytes)) return self;
  return slice_text(rt, *self.text, 0, self.text->bytes.size() - suffix.bytes.size());
}

Value expandtabs(Runtime& rt, Self self, const Args& args) {
  const int64_t width = integer_arg(rt, args, 0, 8);
  TextBuilder out(rt);
  int64_t column = 0;
  for_each_char(rt, *self.text, [&](char32_t code, std::string_view bytes, bool from_input) {
    if (rt.failed()) return;
    if (code == '\t' && width > 0) {
      out.pad(static_cast<size_t>(width - column % width));
      column = 0;
    } else if (code != '\t') {
      out.append(bytes, from_input);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  });
  return out.finish(self.text->is_markup);
}

Value format(Runtime& rt, Self self, const Args& args) { return format_braces(rt, *self.text, args); }

Value format_map(Runtime& rt, Self self, const Args& args) {
  if (!args[0].is(Kind::dict)) return rt.fail("format_map() takes a mapping");
  std::vector<NamedValue> named;
  for (const Entry& entry : args[0].dict->entries) {
    if (entry.key.is(Kind::text) && rt.charge(1)) named.push_back({entry.key.text, entry.value});
  }
  return format_braces(rt, *self.text, Args{{}, named});
}

constexpr Builtin kMethods[] = {
    {"upper", upper},
    {"lower", lower},
    {"casefold", lower},
    {"title", title},
    {"capitalize", capitalized},
    {"swapcase", swapcase},
    {"strip", strip_both, "chars"},
    {"lstrip", strip_left, "chars"},
    {"rstrip", strip_right, "chars"},
    {"replace", replaced, "old new count", 2},
    {"split", split_left, "sep maxsplit"},
    {"rsplit", split_right, "sep maxsplit"},
    {"splitlines", splitlines, "keepends"},
    {"partition", partition, "sep", 1},
    {"rpartition", rpartition, "sep", 1},
    {"join", join, "iterable", 1},
    {"center", centered, "width fillchar", 1},
    {"ljust", ljust, "width fillchar", 1},
    {"rjust", rjust, "width fillchar", 1},
    {"zfill", zfill, "width", 1},
    {"removeprefix", removeprefix, "prefix", 1},
    {"removesuffix", removesuffix, "suffix", 1},
    {"expandtabs", expandtabs, "tabsize"},
    {"format", format, Builtin::kVariadic},
    {"format_map", format_map, "mapping", 1},
};

}  // namespace

std::span<const Builtin> text_methods() { return kMethods; }

}  // namespace zinc::jinja
