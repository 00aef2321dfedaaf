#include "text/jinja/format.h"

#include <charconv>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace zinc::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Parses the digits at text[at..] and advances `at`. Saturates; too large values fail later.
size_t read_number(std::string_view text, size_t& at) {
  size_t number = 0;
  const auto parsed = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (parsed.ec == std::errc::result_out_of_range) number = ~size_t{0} >> 1;
  at = static_cast<size_t>(parsed.ptr - text.data());
  return number;
}

int read_precision(std::string_view text, size_t& at) {
  return static_cast<int>(std::min<size_t>(read_number(text, at), 1'000'000));
}

// '%s %d' % values, from left to right.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Text& format, const Value& values)
      : rt_(rt), format_(format), text_(format.bytes), values_(values), out_(rt) {}

  Value run() {
    rt_.charge(text_.size() / kSearchBytesPerStep);
    while (at_ < text_.size() && rt_.charge(1)) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      if (percent < text_.size()) convert();
    }
    // Python accepts unused arguments for anything that supports item access.
    const bool may_be_unused =
        values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) || values_.is(Kind::undefined);
    if (!rt_.failed() && !uses_names_ && n_used_ < n_values() && !may_be_unused) {
      return rt_.fail("not all arguments converted during string formatting");
    }
    return out_.finish(format_.is_markup);
  }

 private:
  size_t n_values() const { return values_.is(Kind::tuple) ? values_.list->items.size() : 1; }

  Value next_value() {
    if (n_used_ >= n_values()) return rt_.fail("not enough arguments for format string");
    const size_t i = n_used_++;
    return values_.is(Kind::tuple) ? values_.list->items[i] : values_;
  }

  Value named_value() {
    const size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) return rt_.fail("incomplete format key");
    if (!values_.is(Kind::dict)) return rt_.fail("format requires a mapping");
    uses_names_ = true;
    const std::string_view key = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const Value* const value = values_.dict->find(rt_, key);
    return value ? *value : rt_.fail("format key '{}' not found", key);
  }

  size_t read_amount() {  // a number, or * for the next argument
    if (at_ >= text_.size() || text_[at_] != '*') return read_number(text_, at_);
    ++at_;
    int64_t n = 0;
    to_integer(rt_, next_value(), n);
    return static_cast<size_t>(std::max<int64_t>(0, n));
  }

  void read_flags(FormatSpec& spec) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || c == ' ') {
        spec.sign = c;
      } else if (c == '#') {
        spec.is_alternate = true;
      } else if (c == '0') {
        spec.has_zeros = true;
      } else {
        return;
      }
    }
  }

  void convert() {
    const bool is_named = at_ < text_.size() && text_[at_] == '(';
    const Value named = is_named ? named_value() : Value();
    FormatSpec spec;
    spec.align = 0;
    read_flags(spec);
    spec.width = read_amount();
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      spec.precision = static_cast<int>(std::min<size_t>(read_amount(), 1'000'000));
    }
    while (at_ < text_.size() && (text_[at_] == 'l' || text_[at_] == 'h' || text_[at_] == 'L')) ++at_;
    if (rt_.failed()) return;
    if (at_ >= text_.size()) {
      rt_.fail("incomplete format");
      return;
    }
    const char type = text_[at_++];
    if (type == '%') return out_.append("%", false);
    append(type, is_named ? named : next_value(), spec);
  }

  void append(char type, const Value& value, FormatSpec& spec) {
    if (rt_.failed()) return;
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        spec.type = 's';
        if (spec.align == 0) spec.align = '>';
        return append_formatted(rt_, out_, type == 's' ? value : to_repr(rt_, value), spec);
      case 'd':
      case 'i':
      case 'u':
        return append_whole(value, spec);
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        spec.type = type;
        return append_formatted(rt_, out_, value, spec);
      case 'c':
        return append_char(value);
      default:
        rt_.fail("unsupported format character '{}'", type);
    }
  }

  void append_whole(const Value& value, FormatSpec& spec) {
    spec.type = 'd';
    if (!value.is(Kind::real)) return append_formatted(rt_, out_, value, spec);
    if (!(std::fabs(value.real) < 9.2e18)) {
      rt_.fail("number does not fit in 64 bits");
      return;
    }
    append_formatted(rt_, out_, Value(static_cast<int64_t>(value.real)), spec);
  }

  void append_char(const Value& value) {
    if (value.is(Kind::text) && n_chars(rt_, value.text->bytes) == 1) return out_.append(*value.text);
    const bool is_code = value.is_integral() && value.integer >= 0 && value.integer <= 0x10FFFF &&
                         (value.integer < 0xD800 || value.integer > 0xDFFF);
    if (!is_code) {
      rt_.fail("%c requires an int or a char");
      return;
    }
    std::string bytes;
    append_utf8(bytes, static_cast<char32_t>(value.integer));
    out_.append(bytes, false);
  }

  Runtime& rt_;
  const Text& format_;
  const std::string_view text_;
  const Value values_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t n_used_ = 0;
  bool uses_names_ = false;
};

// '{} {name.attribute[0]!r:>8}'.format(...), from left to right.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Text& format, const Args& args)
      : rt_(rt), format_(format), text_(format.bytes), args_(args), out_(rt) {}

  Value run() {
    rt_.charge(text_.size() / kSearchBytesPerStep);
    while (at_ < text_.size() && rt_.charge(1)) {
      const size_t brace = std::min(text_.find_first_of("{}", at_), text_.size());
      out_.append(format_, at_, brace);
      at_ = brace;
      if (at_ == text_.size()) break;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == text_[at_]) {
        out_.append(format_, at_, at_ + 1);
        at_ += 2;
      } else if (text_[at_] == '}') {
        return rt_.fail("single '}}' encountered in format string");
      } else {
        convert();
      }
    }
    return out_.finish(format_.is_markup);
  }

 private:
  void convert() {
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) {
      rt_.fail("expected '}}' before end of string");
      return;
    }
    std::string_view field = text_.substr(at_ + 1, end - at_ - 1);
    const size_t begin = at_ + 1;
    at_ = end + 1;
    if (field.find('{') != std::string_view::npos) {
      rt_.fail("nested fields in a format string are not supported");
      return;
    }
    const size_t colon = std::min(field.find(':'), field.size());
    FormatSpec spec;
    if (colon < field.size() && !read_spec(begin + colon + 1, end, spec)) return;
    field = field.substr(0, colon);
    char conversion = 's';
    const size_t mark = field.find('!');
    if (mark != std::string_view::npos) {
      conversion = mark + 1 < field.size() ? field[mark + 1] : '\0';
      field = field.substr(0, mark);
    }
    const Value value = find_value(field);
    if (rt_.failed()) return;
    append_formatted(rt_, out_,
                     conversion == 's' && mark == std::string_view::npos ? value : converted(value, conversion), spec);
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == 's') return Value(&to_text(rt_, value));
    if (conversion == 'r' || conversion == 'a') return to_repr(rt_, value);
    return rt_.fail("unknown conversion in format string");
  }

  Value find_value(std::string_view field) {
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    Value value = first_value(field.substr(0, name_end));
    field.remove_prefix(name_end);
    while (!field.empty() && !rt_.failed()) {
      const bool is_item = field[0] == '[';
      const size_t end = is_item ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if (end == std::string_view::npos) return rt_.fail("missing ']' in format string");
      const Value key = rt_.text(field.substr(1, end - 1));
      if (!key.is(Kind::text)) return Value();
      value = is_item ? get_item(rt_, value, index_or_name(key)) : get_attribute(rt_, value, *key.text);
      field.remove_prefix(std::min(end + (is_item ? 1 : 0), field.size()));
    }
    return value;
  }

  static Value index_or_name(const Value& key) {
    size_t at = 0;
    const std::string_view bytes = key.text->bytes;
    if (bytes.empty() || bytes.size() > 18 || !is_digit(bytes[0])) return key;
    const size_t index = read_number(bytes, at);
    return at == bytes.size() ? Value(static_cast<int64_t>(index)) : key;
  }

  Value first_value(std::string_view name) {
    if (name.empty() || is_digit(name[0])) {
      size_t at = 0;
      const size_t index = name.empty() ? n_used_++ : read_number(name, at);
      if (index < args_.positional.size()) return args_.positional[index];
      return rt_.fail("Replacement index {} out of range for positional args tuple", index);
    }
    rt_.charge(args_.named.size() / kNamesPerStep);
    for (const NamedValue& arg : args_.named) {
      if (equal_texts(rt_, arg.name->bytes, name)) return arg.value;
    }
    return rt_.fail("format: no argument named '{}'", name);
  }

  // [[fill]align][sign][#][0][width][,][.precision][type] at text_[at..end).
  bool read_spec(size_t at, size_t end, FormatSpec& spec) {
    const std::string_view text = text_.substr(0, end);
    const auto next_is = [&](std::string_view wanted) {
      return at < end && wanted.find(text[at]) != std::string_view::npos;
    };
    const size_t n_fill = at < end ? static_cast<size_t>(next_utf8(text.substr(at)).n_bytes) : 0;
    if (at + n_fill < end && std::string_view("<>^=").find(text[at + n_fill]) != std::string_view::npos) {
      const Value fill = slice_text(rt_, format_, at, at + n_fill);
      spec.fill = *fill.text;
      at += n_fill;
    }
    if (next_is("<>^=")) spec.align = text[at++];
    if (next_is("+- ")) spec.sign = text[at++];
    if (next_is("#")) spec.is_alternate = true, ++at;
    if (next_is("0")) spec.has_zeros = true, ++at;
    if (next_is("0123456789")) spec.width = read_number(text, at);
    if (next_is(",_")) spec.has_commas = true, ++at;
    if (next_is(".")) {
      ++at;
      spec.precision = read_precision(text, at);
    }
    if (at < end) spec.type = text[at++];
    if (at != end) rt_.fail("invalid format specifier '{}'", text_.substr(0, end));
    return !rt_.failed();
  }

  Runtime& rt_;
  const Text& format_;
  const std::string_view text_;
  const Args& args_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t n_used_ = 0;
};

}  // namespace

Value format_percent(Runtime& rt, const Text& format, const Value& values) {
  return PercentFormatter(rt, format, values).run();
}

Value format_braces(Runtime& rt, const Text& format, const Args& args) {
  return BraceFormatter(rt, format, args).run();
}

}  // namespace zinc::jinja
