// The tojson filter: Python's json.dumps with ensure_ascii=False.
#include <algorithm>
#include <cmath>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, TextBuilder& out, const JsonStyle& style) : rt_(rt), out_(out), style_(style) {}

  void write(const Value& value, bool from_input, size_t depth) {
    if (depth > kMaxValueDepth) rt_.fail("value is nested too deeply for JSON");
    if (!rt_.charge(1)) return;
    switch (value.kind) {
      case Kind::text:
        return write_text(*value.text, from_input);
      case Kind::list:
      case Kind::tuple:
        return write_list(*value.list, depth);
      case Kind::dict:
        return write_dict(*value.dict, depth);
      default:
        return write_plain(value, from_input);
    }
  }

 private:
  void write_plain(const Value& value, bool from_input) {
    switch (value.kind) {
      case Kind::none:
        return out_.append("null", from_input);
      case Kind::boolean:
        return out_.append(value.integer ? "true" : "false", from_input);
      case Kind::integer:
      case Kind::big_integer:
        return append_repr(rt_, out_, value, from_input);
      case Kind::real:
        return out_.append(real(value.real), from_input);
      default:
        rt_.fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

  static std::string real(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return real_to_text(number);
  }

  bool needs_escape(unsigned char c) const {
    return c < 0x20 || c == '"' || c == '\\' || (style_.ensure_ascii && c >= 0x7F);
  }

  void write_text(const Text& text, bool from_input) {
    out_.append("\"", from_input);
    for_each_run(text, 0, text.bytes.size(), [&](std::string_view piece, bool is_input) {
      while (!piece.empty() && !rt_.failed()) {
        const auto escaped = std::find_if(piece.begin(), piece.end(),
                                          [this](char c) { return needs_escape(static_cast<unsigned char>(c)); });
        const size_t n_plain = static_cast<size_t>(escaped - piece.begin());
        out_.append(piece.substr(0, n_plain), is_input);
        piece.remove_prefix(n_plain);
        if (piece.empty()) return;
        const Utf8Char c = next_utf8(piece);
        write_escape(c.code, is_input);
        piece.remove_prefix(static_cast<size_t>(c.n_bytes));
      }
    });
    out_.append("\"", from_input);
  }

  void write_escape(char32_t code, bool from_input) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t letter = code < 0x80 ? kPlain.find(static_cast<char>(code)) : std::string_view::npos;
    const auto number = static_cast<uint32_t>(code);
    rt_.charge(1);
    if (letter != std::string_view::npos) {
      const char escape[] = {'\\', kLetters[letter]};
      out_.append({escape, 2}, from_input);
    } else if (number < 0x10000) {
      out_.append(fmt::format("\\u{:04x}", number), from_input);
    } else {
      out_.append(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10), 0xDC00 + (number & 0x3FF)),
                  from_input);
    }
  }

  void new_line(size_t depth, bool from_input) {
    if (!style_.has_indent) return;
    out_.append("\n", from_input);
    if (style_.indent.bytes.empty()) return;
    for (size_t i = 0; i < depth; ++i) put(style_.indent, from_input);
  }

  // Separators have the origin of the enclosing value, or their own if the template passed input.
  void put(const Text& text, bool from_input) {
    if (from_input) {
      out_.append(text.bytes, true);
    } else {
      out_.append(text);
    }
  }

  void write_list(const List& list, size_t depth) {
    if (list.items.empty()) return out_.append("[]", list.from_input);
    out_.append("[", list.from_input);
    for (size_t i = 0; i < list.items.size() && !rt_.failed(); ++i) {
      if (i > 0) put(style_.item_separator, list.from_input);
      new_line(depth + 1, list.from_input);
      write(list.items[i], list.from_input, depth + 1);
    }
    new_line(depth, list.from_input);
    out_.append("]", list.from_input);
  }

  void write_dict(const Dict& dict, size_t depth) {
    if (dict.entries.empty()) return out_.append("{}", dict.from_input);
    std::vector<Entry> entries(dict.entries.begin(), dict.entries.end());
    if (style_.sort_keys) sort_entries(entries);
    out_.append("{", dict.from_input);
    for (size_t i = 0; i < entries.size() && !rt_.failed(); ++i) {
      if (i > 0) put(style_.item_separator, dict.from_input);
      new_line(depth + 1, dict.from_input);
      write_key(entries[i].key, dict.from_input);
      put(style_.key_separator, dict.from_input);
      write(entries[i].value, dict.from_input, depth + 1);
    }
    new_line(depth, dict.from_input);
    out_.append("}", dict.from_input);
  }

  void write_key(const Value& key, bool from_input) {
    if (key.is(Kind::text)) return write_text(*key.text, from_input);
    if (!key.is_number() && !key.is(Kind::none)) {
      rt_.fail("keys must be str, int, float, bool or None, not {}", type_name(key));
      return;
    }
    out_.append("\"", from_input);
    write_plain(key, from_input);
    out_.append("\"", from_input);
  }

  void sort_entries(std::vector<Entry>& entries) {
    const bool all_text =
        std::all_of(entries.begin(), entries.end(), [](const Entry& e) { return e.key.is(Kind::text); });
    const bool no_text =
        std::none_of(entries.begin(), entries.end(), [](const Entry& e) { return !e.key.is_number(); });
    if (!all_text && !no_text && entries.size() > 1) {
      rt_.fail("'<' not supported between keys of different types");
      return;
    }
    rt_.charge(entries.size() * 8);
    std::sort(entries.begin(), entries.end(),
              [this](const Entry& a, const Entry& b) { return compare_keys(rt_, a.key, b.key) < 0; });
  }

  Runtime& rt_;
  TextBuilder& out_;
  const JsonStyle& style_;
};

bool read_indent(Runtime& rt, const Value& value, JsonStyle& style) {
  if (value.is(Kind::none)) return true;
  style.has_indent = true;
  style.item_separator = Text{",", {}};
  if (value.is(Kind::text)) {
    style.indent = *value.text;
    return true;
  }
  int64_t n = 0;
  if (!to_integer(rt, value, n)) return false;
  const size_t n_spaces = static_cast<size_t>(std::max<int64_t>(n, 0));
  TextBuilder spaces(rt);
  spaces.pad(n_spaces);
  const Value indent = spaces.finish();
  if (!indent.is(Kind::text)) return false;
  style.indent = *indent.text;
  return true;
}

bool read_separators(Runtime& rt, const Value& value, JsonStyle& style) {
  if (value.is(Kind::none)) return true;
  const bool is_pair = value.is_sequence() && value.list->items.size() == 2 && value.list->items[0].is(Kind::text) &&
                       value.list->items[1].is(Kind::text);
  if (!is_pair) {
    rt.fail("tojson: separators must be a pair of strings");
    return false;
  }
  style.item_separator = *value.list->items[0].text;
  style.key_separator = *value.list->items[1].text;
  return true;
}

Value to_json(Runtime& rt, const Value& self, const Args& args) {
  JsonStyle style;
  if (args.has(0)) style.ensure_ascii = is_true(args[0]);
  if (args.has(1) && !read_indent(rt, args[1], style)) return Value();
  if (args.has(2) && !read_separators(rt, args[2], style)) return Value();
  if (args.has(3)) style.sort_keys = is_true(args[3]);
  TextBuilder out(rt);
  append_json(rt, out, self, style);
  return out.finish();
}

}  // namespace

const Builtin kToJson{"tojson", to_json, "ensure_ascii indent separators sort_keys"};

void append_json(Runtime& rt, TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(rt, out, style).write(value, false, 0);
}

}  // namespace zinc::jinja
