// String filters: upper, trim, replace, indent, urlencode, ...
#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/loop_context.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

using Self = const Value&;

Value upper(Runtime& rt, Self self, const Args&) { return to_case(rt, to_text(rt, self), Case::upper); }
Value lower(Runtime& rt, Self self, const Args&) { return to_case(rt, to_text(rt, self), Case::lower); }
Value title(Runtime& rt, Self self, const Args&) { return to_title_words(rt, to_text(rt, self)); }
Value capitalized(Runtime& rt, Self self, const Args&) { return capitalize(rt, to_text(rt, self)); }
Value trim(Runtime& rt, Self self, const Args& args) { return strip(rt, to_text(rt, self), Side::both, args[0]); }
Value string(Runtime& rt, Self self, const Args&) { return Value(&to_text(rt, self)); }

Value replaced(Runtime& rt, Self self, const Args& args) {
  const int64_t max_count = integer_arg(rt, args, 2, -1);
  Text text = to_text(rt, self);
  text.is_markup = false;
  const Text* const kept = rt.arena().make<Text>(text);
  return rt.failed() ? Value() : replace(rt, *kept, to_text(rt, args[0]), to_text(rt, args[1]), max_count);
}

Value safe(Runtime& rt, Self self, const Args&) {
  Text text = to_text(rt, self);
  text.is_markup = true;
  return Value(rt.arena().make<Text>(text));
}

Value escaped(Runtime& rt, Self self, const Args&) {
  return Value(rt.arena().make<Text>(escape_html(rt, to_text(rt, self))));
}

Value force_escaped(Runtime& rt, Self self, const Args&) {
  Text text = to_text(rt, self);
  text.is_markup = false;
  return Value(rt.arena().make<Text>(escape_html(rt, text)));
}

Value centered(Runtime& rt, Self self, const Args& args) {
  static const Text kSpace{" ", {}};
  return center(rt, to_text(rt, self), integer_arg(rt, args, 0, 80), kSpace);
}

Value indent(Runtime& rt, Self self, const Args& args) {
  const Text& text = text_arg(rt, self);
  const bool first = flag_arg(args, 1, false), blank = flag_arg(args, 2, false);
  TextBuilder spaces(rt);
  if (args.has(0) && args[0].is(Kind::text)) {
    spaces.append(*args[0].text);
  } else {
    spaces.pad(static_cast<size_t>(std::max<int64_t>(0, integer_arg(rt, args, 0, 4))));
  }
  const Value margin = spaces.finish();
  if (rt.failed()) return Value();
  // Append a newline before splitting, so that a trailing newline gives an empty last line.
  const Text newline{"\n", {}};
  const Text* const both[] = {&text, &newline};
  const Value ended = rt.join(both);
  if (rt.failed()) return Value();
  const Value lines = split_lines(rt, *ended.text, false);
  if (rt.failed()) return Value();
  TextBuilder out(rt);
  bool is_first = true;
  for (const Value& line : lines.list->items) {
    const bool is_empty = line.text->bytes.empty();
    if (!is_first) out.append("\n", false);
    if (is_first ? first : (blank || !is_empty)) out.append(*margin.text);
    out.append(*line.text);
    is_first = false;
  }
  return out.finish();
}

Value truncate(Runtime& rt, Self self, const Args& args) {
  static const Text kDots{"...", {}};
  const Text& end = args.has(2) ? text_arg(rt, args[2]) : kDots;
  const int64_t length = integer_arg(rt, args, 0, 255), leeway = integer_arg(rt, args, 3, 5);
  const int64_t n_end = static_cast<int64_t>(n_chars(rt, end.bytes));
  if (length < n_end) return rt.fail("truncate: expected length >= {}, got {}", n_end, length);
  if (leeway < 0) return rt.fail("truncate: expected leeway >= 0, got {}", leeway);
  const int64_t n = length_of(rt, self);
  if (n >= 0 && (n <= leeway || n - leeway <= length)) return self;
  const Text& text = text_arg(rt, self);
  size_t kept = byte_offset(rt, text.bytes, static_cast<size_t>(length - n_end));
  if (!flag_arg(args, 1, false)) {
    const size_t space = text.bytes.substr(0, kept).rfind(' ');
    if (space != std::string_view::npos) kept = space;
  }
  TextBuilder out(rt);
  out.append(text, 0, kept);
  out.append(end);
  return out.finish();
}

Value wordcount(Runtime& rt, Self self, const Args&) {
  int64_t n_words = 0;
  bool is_inside = false;
  const Text& text = to_text(rt, self);
  for_each_char(rt, text, [&](char32_t code, std::string_view, bool) {
    const bool is_word = code == '_' || is_alpha(code) || is_numeric(code) || is_decimal(code);
    n_words += is_word && !is_inside ? 1 : 0;
    is_inside = is_word;
  });
  return Value(n_words);
}

Value format(Runtime& rt, Self self, const Args& args) {
  const Text& text = to_text(rt, self);
  if (args.named.empty()) return format_percent(rt, text, rt.tuple(args.positional));
  if (!args.positional.empty()) {
    return rt.fail("format: can't handle positional and keyword arguments at the same time");
  }
  std::vector<Entry> entries;
  for (const NamedValue& arg : args.named) entries.push_back({Value(arg.name), arg.value});
  return format_percent(rt, text, rt.dict(entries));
}

// The end of the tag or comment at text[at]; npos: unterminated.
size_t tag_end(std::string_view text, size_t at) {
  const std::string_view close = text.substr(at).starts_with("<!--") ? "-->" : ">";
  const size_t end = text.find(close, at + 1);
  return end == std::string_view::npos ? end : end + close.size();
}

Value striptags(Runtime& rt, Self self, const Args&) {
  const Text& text = to_text(rt, self);
  rt.charge(text.bytes.size() / kBytesPerStep);
  TextBuilder without_tags(rt);
  size_t at = 0;
  while (at < text.bytes.size() && rt.charge(1)) {
    const size_t open = std::min(text.bytes.find('<', at), text.bytes.size());
    without_tags.append(text, at, open);
    const size_t end = open < text.bytes.size() ? tag_end(text.bytes, open) : open;
    if (end == std::string_view::npos) {
      without_tags.append(text, open, text.bytes.size());
      break;
    }
    at = end;
  }
  const Value plain = without_tags.finish();
  if (rt.failed()) return Value();
  const Value words = split_at_spaces(rt, *plain.text, -1, false);
  TextBuilder out(rt);
  for (size_t i = 0; !rt.failed() && i < words.list->items.size(); ++i) {
    if (i > 0) out.append(" ", false);
    out.append(*words.list->items[i].text);
  }
  Value result = out.finish();
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) {
    if (result.is(Kind::text)) result = replace(rt, *result.text, Text{entity, {}}, Text{character, {}}, -1);
  }
  return result;
}

void append_url(Runtime& rt, TextBuilder& out, const Text& text, bool is_query) {
  for_each_run(text, 0, text.bytes.size(), [&](std::string_view piece, bool from_input) {
    for (const char c : piece) {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                            c == '.' || c == '-' || c == '~' || (c == '/' && !is_query);
      if (is_plain) {
        out.append({&c, 1}, from_input);
      } else if (c == ' ' && is_query) {
        out.append("+", from_input);
      } else if (rt.charge(3)) {
        out.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), from_input);
      }
    }
  });
}

Value urlencode(Runtime& rt, Self self, const Args&) {
  TextBuilder out(rt);
  if (self.is(Kind::text) || !is_iterable(self)) {
    append_url(rt, out, to_text(rt, self), false);
    return out.finish();
  }
  Value pairs = self;
  if (self.is(Kind::dict)) pairs = Value(rt.arena().make<View>(View::Part::items, self.dict));
  Items items;
  if (!items_of(rt, pairs, items)) return Value();
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) {
    const Value pair = items[i];
    if (!pair.is_sequence() || pair.list->items.size() != 2) return rt.fail("urlencode: expected pairs");
    if (i > 0) out.append("&", false);
    append_url(rt, out, to_text(rt, pair.list->items[0]), true);
    out.append("=", false);
    append_url(rt, out, to_text(rt, pair.list->items[1]), true);
  }
  return out.finish();
}

Value pprint(Runtime& rt, Self self, const Args&) { return to_repr(rt, self); }

constexpr Builtin kFilters[] = {
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalized},
    {"trim", trim, "chars"},
    {"string", string},
    {"replace", replaced, "old new count", 2},
    {"safe", safe},
    {"e", escaped},
    {"escape", escaped},
    {"forceescape", force_escaped},
    {"center", centered, "width"},
    {"indent", indent, "width first blank"},
    {"truncate", truncate, "length killwords end leeway"},
    {"wordcount", wordcount},
    {"format", format, Builtin::kVariadic},
    {"striptags", striptags},
    {"urlencode", urlencode},
    {"pprint", pprint},
};

}  // namespace

std::span<const Builtin> text_filters() { return kFilters; }

const Builtin* find_filter(std::string_view name) {
  if (name == kToJson.name) return &kToJson;
  for (const std::span<const Builtin> rows :
       {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    if (const Builtin* const found = find_builtin(rows, name)) return found;
  }
  return nullptr;
}

}  // namespace zinc::jinja
