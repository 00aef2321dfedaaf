#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/utf8.h"
#include "text/jinja/text_literal.h"
#include "text/unicode_case.h"

namespace zinc::jinja {
namespace {

struct Operator {
  std::string_view text;
  Tok type;
};

constexpr std::array kOperators = {
    // longer ones first
    Operator{"//", Tok::floordiv}, Operator{"**", Tok::pow},      Operator{"==", Tok::eq},
    Operator{"!=", Tok::ne},       Operator{">=", Tok::gteq},     Operator{"<=", Tok::lteq},
    Operator{"+", Tok::add},       Operator{"-", Tok::sub},       Operator{"/", Tok::div},
    Operator{"*", Tok::mul},       Operator{"%", Tok::mod},       Operator{"~", Tok::tilde},
    Operator{"[", Tok::lbracket},  Operator{"]", Tok::rbracket},  Operator{"(", Tok::lparen},
    Operator{")", Tok::rparen},    Operator{"{", Tok::lbrace},    Operator{"}", Tok::rbrace},
    Operator{">", Tok::gt},        Operator{"<", Tok::lt},        Operator{"=", Tok::assign},
    Operator{".", Tok::dot},       Operator{":", Tok::colon},     Operator{"|", Tok::pipe},
    Operator{",", Tok::comma},     Operator{";", Tok::semicolon},
};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// Normalizes line ends to "\n" and drops a trailing one, as jinja2 does by default.
std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text.push_back('\n');
    } else {
      text.push_back(source[i]);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

size_t space_length(std::string_view text) {  // bytes of the white space character at its start; 0: none
  if (text.empty()) return 0;
  const Utf8Char c = next_utf8(text);
  return is_space(c.code) ? static_cast<size_t>(c.n_bytes) : 0;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (const size_t n = space_length(text.substr(at))) at += n;
  return at;
}

// Where the white space at the end of text[from..] begins.
size_t trailing_space_begin(std::string_view text, size_t from) {
  size_t begin = text.size();
  while (begin > from) {
    size_t at = begin - 1;
    while (at > from && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (space_length(text.substr(at)) == 0) break;
    begin = at;
  }
  return begin;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size() && !error_) lex_data();
    if (error_) return *error_;
    push(Tok::eof, pos_at(text_.size()));
    return std::move(tokens_);
  }

 private:
  void fail(size_t at, std::string_view message) {
    if (!error_) error_ = error_at(pos_at(at), message);
  }

  // Positions are mostly requested in increasing order, so counting continues from the last one.
  Pos pos_at(size_t at) {
    if (at < counted_at_) {
      counted_at_ = 0;
      counted_ = Pos{};
    }
    for (; counted_at_ < at; ++counted_at_) {
      const char c = text_[counted_at_];
      if (c == '\n') {
        ++counted_.line;
        counted_.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        ++counted_.column;
      }
    }
    return counted_;
  }

  Token& push(Tok type, Pos pos) {
    tokens_.push_back(Token{type, pos, {}, 0, 0});
    return tokens_.back();
  }

  bool looking_at(std::string_view wanted) const { return text_.substr(at_).starts_with(wanted); }

  // Text up to the next tag, then that tag.
  void lex_data() {
    const size_t begin = at_;
    size_t open = begin;
    for (;; ++open) {
      open = text_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= text_.size()) return take_rest(begin);
      const char c = text_[open + 1];
      if (c == '%' || c == '{' || c == '#') break;
    }
    const char tag = text_[open + 1];
    at_ = open + 2;
    char sign = 0;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) sign = text_[at_++];
    push_data(begin, strip_before_tag(begin, open, sign, tag == '{'));
    if (tag == '#') return skip_comment(open);
    if (tag == '{') return lex_tag(open, Tok::variable_begin);
    if (!lex_raw(open)) lex_tag(open, Tok::block_begin);
  }

  void take_rest(size_t begin) {
    push_data(begin, text_.size());
    at_ = text_.size();
  }

  void push_data(size_t begin, size_t end) {
    if (end > begin) push(Tok::data, pos_at(begin)).text = text_.substr(begin, end - begin);
  }

  // The end of the text kept before a tag.
  size_t strip_before_tag(size_t begin, size_t open, char sign, bool is_variable) const {
    const std::string_view before = text_.substr(0, open);
    if (sign == '-') return trailing_space_begin(before, begin);
    if (sign == '+' || is_variable) return open;
    const size_t newline = before.substr(begin).rfind('\n');
    const bool has_line = newline != std::string_view::npos || begin == 0 || text_[begin - 1] == '\n';
    const size_t line = newline == std::string_view::npos ? begin : begin + newline + 1;
    return has_line && trailing_space_begin(before, line) == line ? line : open;
  }

  // After an end marker such as "%}": "-" strips all white space, else a block drops one newline.
  void finish_tag(char sign, bool trims_newline) {
    at_ += 2;
    if (sign == '-') {
      at_ = skip_spaces(text_, at_);
    } else if (sign != '+' && trims_newline && looking_at("\n")) {
      ++at_;
    }
  }

  void skip_comment(size_t open) {
    // "-" may belong to both the opening and the end: "{#-#}" is a complete comment.
    if (at_ == text_.size()) return;  // jinja2 accepts a comment that opens at the very end
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return fail(open, "Missing end of comment tag");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end;
    finish_tag(sign, true);
  }

  // "raw" or "endraw" and the end of its block at `at`; the position of "%}" and its sign.
  struct RawMark {
    size_t end;
    char sign;
  };
  std::optional<RawMark> match_raw_mark(size_t at, std::string_view word) const {
    at = skip_spaces(text_, at);
    if (!text_.substr(at).starts_with(word)) return std::nullopt;
    at = skip_spaces(text_, at + word.size());
    char sign = 0;
    if (at < text_.size() && (text_[at] == '-' || (text_[at] == '+' && word == "endraw"))) sign = text_[at++];
    if (!text_.substr(at).starts_with("%}")) return std::nullopt;
    return RawMark{at, sign};
  }

  bool lex_raw(size_t open) {
    const std::optional<RawMark> begin = match_raw_mark(at_, "raw");
    if (!begin) return false;
    at_ = begin->end;
    finish_tag(begin->sign, false);
    const size_t data = at_;
    for (size_t tag = text_.find("{%", data); tag != std::string_view::npos; tag = text_.find("{%", tag + 1)) {
      size_t word = tag + 2;
      char sign = 0;
      if (word < text_.size() && (text_[word] == '-' || text_[word] == '+')) sign = text_[word++];
      const std::optional<RawMark> end = match_raw_mark(word, "endraw");
      if (!end) continue;
      push_data(data, strip_before_tag(data, tag, sign, false));
      at_ = end->end;
      finish_tag(end->sign, true);
      return true;
    }
    fail(open, "Missing end of raw directive");
    return true;
  }

  // The inside of {{ }} or {% %}.
  void lex_tag(size_t open, Tok begin) {
    push(begin, pos_at(open));
    const bool is_block = begin == Tok::block_begin;
    const std::string_view end_mark = is_block ? "%}" : "}}";
    brackets_.clear();
    while (!error_) {
      at_ = skip_spaces(text_, at_);
      if (at_ >= text_.size()) return;
      const char sign = text_[at_] == '-' || (text_[at_] == '+' && is_block) ? text_[at_] : '\0';
      if (brackets_.empty() && text_.substr(at_ + (sign ? 1 : 0)).starts_with(end_mark)) {
        push(is_block ? Tok::block_end : Tok::variable_end, pos_at(at_));
        at_ += sign ? 1 : 0;
        return finish_tag(sign, is_block);
      }
      lex_token();
    }
  }

  void lex_token() {
    const char c = text_[at_];
    if (is_ascii_digit(c)) return lex_number();
    if (c == '\'' || c == '"') return lex_text();
    const size_t n_name = name_length();
    if (n_name > 0) {
      push(Tok::name, pos_at(at_)).text = text_.substr(at_, n_name);
      at_ += n_name;
      return;
    }
    lex_operator();
  }

  size_t name_length() const {
    size_t end = at_;
    while (end < text_.size()) {
      const Utf8Char c = next_utf8(text_.substr(end));
      const bool is_letter = c.code == '_' || (c.code < 0x80 ? is_ascii_letter(c.code) : is_alpha(c.code));
      const bool is_later = end > at_ && (c.code < 0x80 ? is_ascii_digit(text_[end]) : is_decimal(c.code));
      if (!is_letter && !is_later) break;
      end += static_cast<size_t>(c.n_bytes);
    }
    return end - at_;
  }
  static bool is_ascii_letter(char32_t code) { return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z'); }

  void lex_operator() {
    for (const Operator& op : kOperators) {
      if (!looking_at(op.text)) continue;
      if (!balance(op)) return;
      push(op.type, pos_at(at_));
      at_ += op.text.size();
      return;
    }
    const size_t n_bytes = static_cast<size_t>(next_utf8(text_.substr(at_)).n_bytes);
    fail(at_, fmt::format("unexpected char '{}'", text_.substr(at_, n_bytes)));
  }

  bool balance(const Operator& op) {
    const char c = op.text[0];
    if (op.text.size() > 1) return true;
    if (c == '(' || c == '[' || c == '{') {
      brackets_.push_back(c == '(' ? ')' : static_cast<char>(c + 2));
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) {
        fail(at_, brackets_.empty() ? fmt::format("unexpected '{}'", c)
                                    : fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
        return false;
      }
      brackets_.pop_back();
    }
    return true;
  }

  // Digits of `base` from `at`, "_" allowed between two; returns where they end.
  size_t digits_end(size_t at, int base) const {
    const auto is_digit_here = [&](size_t i) {
      if (i >= text_.size()) return false;
      const char c = text_[i];
      const int digit = is_ascii_digit(c) ? c - '0' : ((c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99);
      return digit < base;
    };
    while (is_digit_here(at) || (at < text_.size() && text_[at] == '_' && is_digit_here(at + 1))) ++at;
    return at;
  }

  void lex_number() {
    const size_t end = real_end();
    if (end > at_ && (at_ == 0 || text_[at_ - 1] != '.')) return push_real(end);
    int base = 10;
    if (text_[at_] == '0' && at_ + 2 < text_.size()) {
      const char mark = static_cast<char>(text_[at_ + 1] | 32);
      base = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 10));
    }
    size_t begin = at_ + (base == 10 ? 0 : 2);
    size_t stop = digits_end(begin, base);
    if (stop == begin) base = 10, begin = at_, stop = at_ + 1;
    push_integer(begin, stop, base);
  }

  // End of a floating point number at at_; at_ if there is none.
  size_t real_end() const {
    const size_t whole = digits_end(at_, 10);
    size_t end = at_, fraction = whole;
    if (whole + 1 < text_.size() && text_[whole] == '.' && is_ascii_digit(text_[whole + 1])) {
      fraction = end = digits_end(whole + 1, 10);
    }
    if (fraction < text_.size() && (text_[fraction] | 32) == 'e') {
      size_t exponent = fraction + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_ascii_digit(text_[exponent])) end = digits_end(exponent, 10);
    }
    return end;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string digits(text_.substr(begin, end - begin));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    return digits;
  }

  void push_real(size_t end) {
    const std::string digits = without_underscores(at_, end);
    Token& token = push(Tok::real, pos_at(at_));
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    if (parsed.ec != std::errc()) fail(at_, fmt::format("number {} is out of range", digits));
    at_ = end;
  }

  void push_integer(size_t begin, size_t end, int base) {
    const std::string digits = without_underscores(begin, end);
    Token& token = push(Tok::integer, pos_at(at_));
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (parsed.ec != std::errc()) fail(at_, fmt::format("number {} does not fit in 64 bits", digits));
    at_ = end;
  }

  void lex_text() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return fail(at_, fmt::format("unexpected char '{}': unterminated string", quote));
    Result<std::string> text = unescape_literal(text_.substr(at_ + 1, end - at_ - 1));
    if (!text.ok()) return fail(at_, text.error().message);
    push(Tok::text, pos_at(at_)).text = std::move(text.value());
    at_ = end + 1;
  }

  const std::string source_;
  const std::string_view text_;
  size_t at_ = 0;
  std::string brackets_;  // expected closing brackets
  std::vector<Token> tokens_;
  std::optional<Error> error_;
  size_t counted_at_ = 0;
  Pos counted_;
};

}  // namespace

Error error_at(Pos pos, std::string_view message) {
  return fail(ErrorCode::invalid_input, "template:{}:{}: {}", pos.line, pos.column, message);
}

std::string_view describe(Tok type) {
  for (const Operator& op : kOperators) {
    if (op.type == type) return op.text;
  }
  switch (type) {
    case Tok::data:
      return "template data / text";
    case Tok::variable_begin:
      return "begin of print statement";
    case Tok::variable_end:
      return "end of print statement";
    case Tok::block_begin:
      return "begin of statement block";
    case Tok::block_end:
      return "end of statement block";
    case Tok::name:
      return "name";
    case Tok::text:
      return "string";
    case Tok::integer:
      return "integer";
    case Tok::real:
      return "float";
    default:
      return "end of template";
  }
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(normalize_newlines(source)).run(); }

}  // namespace zinc::jinja
