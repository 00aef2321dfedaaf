#include "text/jinja/text_ops.h"

#include <algorithm>

#include "text/jinja/operators.h"

namespace zinc::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr std::string_view kFinalSigma = "\xCF\x82", kSmallSigma = "\xCF\x83";
constexpr uint64_t kSigmaSteps = 8;  // for reading the letters around it

// The character that ends at text[..end).
Utf8Char last_utf8(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  Utf8Char c = next_utf8(text.substr(at));
  c.n_bytes = static_cast<int>(text.size() - at);
  return c;
}

// Whether a capital sigma between `before` and `after` ends a word: its lower case is then a final sigma.
bool ends_word(std::string_view before, std::string_view after) {
  while (!before.empty() && is_case_ignorable(last_utf8(before).code)) {
    before.remove_suffix(static_cast<size_t>(last_utf8(before).n_bytes));
  }
  if (before.empty() || !is_cased(last_utf8(before).code)) return false;
  while (!after.empty() && is_case_ignorable(next_utf8(after).code)) {
    after.remove_prefix(static_cast<size_t>(next_utf8(after).n_bytes));
  }
  return after.empty() || !is_cased(next_utf8(after).code);
}

// Maps every character to the case given by `choose(code)`.
template <class Choose>
Value map_chars(Runtime& rt, const Text& text, Choose&& choose) {
  TextBuilder out(rt);
  std::string mapped;
  size_t at = 0;
  CharMeter meter(rt);
  for_each_run(text, 0, text.bytes.size(), [&](std::string_view piece, bool from_input) {
    mapped.clear();
    for (size_t n_bytes = 0; !piece.empty(); piece.remove_prefix(n_bytes), at += n_bytes) {
      const Utf8Char c = next_utf8(piece);
      n_bytes = static_cast<size_t>(c.n_bytes);
      if (!meter.count(c.code)) return;
      const Case wanted = choose(c.code);
      if (c.code != kCapitalSigma || wanted != Case::lower) {
        append_in_case(mapped, c.code, wanted);
      } else if (rt.charge(kSigmaSteps)) {
        const bool is_last = ends_word(text.bytes.substr(0, at), text.bytes.substr(at + n_bytes));
        mapped += is_last ? kFinalSigma : kSmallSigma;
      }
    }
    out.append(mapped, from_input);
  });
  return out.finish(text.is_markup);
}

// The characters removed by strip().
class CharSet {
 public:
  CharSet(Runtime& rt, const Value& chars) : is_spaces_(!chars.is(Kind::text)) {
    if (is_spaces_) return;
    for_each_char(rt, *chars.text, [this](char32_t code, std::string_view, bool) { codes_.push_back(code); });
    std::sort(codes_.begin(), codes_.end());
  }
  bool has(char32_t code) const {
    return is_spaces_ ? is_space(code) : std::binary_search(codes_.begin(), codes_.end(), code);
  }

 private:
  bool is_spaces_;
  std::vector<char32_t> codes_;
};

Value list_from_right(Runtime& rt, std::vector<Value>& pieces) {
  std::reverse(pieces.begin(), pieces.end());
  return rt.list(pieces);
}

// Length of the line end at the start of `text`; 0: none.
size_t line_end_length(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  const Utf8Char c = next_utf8(text);
  const bool is_end = (c.code >= 10 && c.code <= 13) || (c.code >= 0x1C && c.code <= 0x1E) || c.code == 0x85 ||
                      c.code == 0x2028 || c.code == 0x2029;
  return is_end ? static_cast<size_t>(c.n_bytes) : 0;
}

Value replace_between_chars(Runtime& rt, const Text& text, const Text& with, int64_t max_count) {
  TextBuilder out(rt);
  int64_t n_left = max_count < 0 ? static_cast<int64_t>(text.bytes.size()) + 1 : max_count;
  for_each_char(rt, text, [&](char32_t, std::string_view bytes, bool from_input) {
    if (n_left-- > 0) out.append(with);
    out.append(bytes, from_input);
  });
  if (n_left > 0) out.append(with);
  return out.finish(text.is_markup);
}

Value split_spaces_from_left(Runtime& rt, const Text& text, int64_t max_splits) {
  std::vector<Value> pieces;
  const std::string_view bytes = text.bytes;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size() && is_space(next_utf8(bytes.substr(at)).code) == spaces) {
      at += static_cast<size_t>(next_utf8(bytes.substr(at)).n_bytes);
    }
  };
  for (skip(true); at < bytes.size() && rt.charge(1); skip(true)) {
    const size_t begin = at;
    if (max_splits >= 0 && static_cast<int64_t>(pieces.size()) >= max_splits) {
      pieces.push_back(slice_text(rt, text, begin, bytes.size()));
      break;
    }
    skip(false);
    pieces.push_back(slice_text(rt, text, begin, at));
  }
  return rt.list(pieces);
}

Value split_spaces_from_right(Runtime& rt, const Text& text, int64_t max_splits) {
  std::vector<Value> pieces;
  size_t end = text.bytes.size();
  const auto skip = [&](bool spaces) {
    while (end > 0 && is_space(last_utf8(text.bytes.substr(0, end)).code) == spaces) {
      end -= static_cast<size_t>(last_utf8(text.bytes.substr(0, end)).n_bytes);
    }
  };
  for (skip(true); end > 0 && rt.charge(1); skip(true)) {
    const size_t stop = end;
    if (max_splits >= 0 && static_cast<int64_t>(pieces.size()) >= max_splits) {
      pieces.push_back(slice_text(rt, text, 0, stop));
      break;
    }
    skip(false);
    pieces.push_back(slice_text(rt, text, end, stop));
  }
  return list_from_right(rt, pieces);
}

}  // namespace

Value to_case(Runtime& rt, const Text& text, Case wanted) {
  return map_chars(rt, text, [wanted](char32_t) { return wanted; });
}

Value to_title(Runtime& rt, const Text& text) {
  bool is_inside = false;
  return map_chars(rt, text, [&](char32_t code) {
    const Case wanted = is_inside ? Case::lower : Case::title;
    is_inside = is_cased(code);
    return wanted;
  });
}

Value to_title_words(Runtime& rt, const Text& text) {
  bool is_inside = false;
  return map_chars(rt, text, [&](char32_t code) {
    const bool is_between = is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    const Case wanted = is_inside ? Case::lower : Case::upper;
    is_inside = !is_between;
    return wanted;
  });
}

Value capitalize(Runtime& rt, const Text& text) {
  bool is_first = true;
  return map_chars(rt, text, [&](char32_t) { return std::exchange(is_first, false) ? Case::title : Case::lower; });
}

Value strip(Runtime& rt, const Text& text, Side side, const Value& chars) {
  if (!chars.is(Kind::text) && !chars.is(Kind::missing) && !chars.is(Kind::none)) {
    return rt.fail("strip arg must be None or str");
  }
  if (chars.is(Kind::text)) rt.charge(chars.text->bytes.size());  // to sort them
  const CharSet set(rt, chars);
  const std::string_view bytes = text.bytes;
  size_t begin = 0, end = bytes.size();
  while (side != Side::right && begin < end && rt.charge(1)) {
    const Utf8Char c = next_utf8(bytes.substr(begin));
    if (!set.has(c.code)) break;
    begin += static_cast<size_t>(c.n_bytes);
  }
  while (side != Side::left && begin < end && rt.charge(1)) {
    const Utf8Char c = last_utf8(bytes.substr(begin, end - begin));
    if (!set.has(c.code)) break;
    end -= static_cast<size_t>(c.n_bytes);
  }
  return begin == 0 && end == bytes.size() ? Value(&text) : slice_text(rt, text, begin, end);
}

Value replace(Runtime& rt, const Text& text, const Text& old, const Text& with, int64_t max_count) {
  if (old.bytes.empty()) return replace_between_chars(rt, text, with, max_count);
  TextBuilder out(rt);
  size_t at = 0;
  for (int64_t n = 0; (max_count < 0 || n < max_count) && rt.charge(1); ++n) {
    const size_t found = find_text(rt, text.bytes, old.bytes, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(with);
    at = found + old.bytes.size();
  }
  if (at == 0 && !rt.failed() && out.size() == 0) return Value(&text);
  out.append(text, at, text.bytes.size());
  return out.finish(text.is_markup);
}

Value split(Runtime& rt, const Text& text, const Text& separator, int64_t max_splits, bool from_right) {
  const std::string_view sep = separator.bytes;
  if (sep.empty()) return rt.fail("empty separator");
  std::vector<Value> pieces;
  size_t begin = 0, end = text.bytes.size();
  while ((max_splits < 0 || static_cast<int64_t>(pieces.size()) < max_splits) && rt.charge(1)) {
    const size_t found =
        from_right ? rfind_text(rt, text.bytes.substr(0, end), sep) : find_text(rt, text.bytes, sep, begin);
    if (found == std::string_view::npos) break;
    pieces.push_back(from_right ? slice_text(rt, text, found + sep.size(), end) : slice_text(rt, text, begin, found));
    (from_right ? end : begin) = from_right ? found : found + sep.size();
  }
  pieces.push_back(slice_text(rt, text, begin, end));
  return from_right ? list_from_right(rt, pieces) : rt.list(pieces);
}

Value split_at_spaces(Runtime& rt, const Text& text, int64_t max_splits, bool from_right) {
  if (!rt.charge(text.bytes.size() / 2)) return Value();
  return from_right ? split_spaces_from_right(rt, text, max_splits) : split_spaces_from_left(rt, text, max_splits);
}

Value split_lines(Runtime& rt, const Text& text, bool keeps_ends) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes;
  if (!rt.charge(bytes.size() / 4)) return Value();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size() && !rt.failed();) {
    const size_t n_end = line_end_length(bytes.substr(at));
    if (n_end == 0) {
      at += static_cast<size_t>(next_utf8(bytes.substr(at)).n_bytes);
      continue;
    }
    rt.charge(1);
    lines.push_back(slice_text(rt, text, begin, at + (keeps_ends ? n_end : 0)));
    begin = at += n_end;
  }
  if (begin < bytes.size()) lines.push_back(slice_text(rt, text, begin, bytes.size()));
  return rt.list(lines);
}

Value center(Runtime& rt, const Text& text, int64_t width, const Text& fill) {
  const int64_t n = static_cast<int64_t>(n_chars(rt, text.bytes));
  if (width <= n) return Value(&text);
  const int64_t n_pad = width - n;
  const int64_t n_left = n_pad / 2 + (n_pad & width & 1);  // as in CPython: the extra one goes left if the width is odd
  TextBuilder out(rt);
  out.append_repeated(fill, static_cast<size_t>(n_left));
  out.append(text);
  out.append_repeated(fill, static_cast<size_t>(n_pad - n_left));
  return out.finish(text.is_markup);
}

const Text& text_arg(Runtime& rt, const Value& value) {
  static const Text kEmpty{{}, {}};
  if (value.is(Kind::text)) return *value.text;
  if (value.is(Kind::undefined)) {
    rt.fail_undefined(value);
  } else {
    rt.fail("expected a string, got {}", type_name(value));
  }
  return kEmpty;
}

int64_t integer_arg(Runtime& rt, const Args& args, size_t i, int64_t fallback) {
  if (!args.has(i) || args[i].is(Kind::none)) return fallback;
  int64_t value = fallback;
  to_integer(rt, args[i], value);
  return value;
}

bool flag_arg(const Args& args, size_t i, bool fallback) { return args.has(i) ? is_true(args[i]) : fallback; }

}  // namespace zinc::jinja
