#include "constrain/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr int kMaxNesting = 64;  // nesting depth
constexpr int kMaxRepeats = 100'000;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<Grammar> parse() {
    for (skip_space(Newlines::skip); !at_end(); skip_space(Newlines::skip)) {
      ZINC_TRY(rule, read_rule());
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return fail(ErrorCode::invalid_input, "the grammar has no rule 'root'");
    return builder_.finish(root->second);
  }

 private:
  using Expr = GrammarBuilder::Expr;

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool consume(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Error parse_error(std::string_view what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    return fail(ErrorCode::invalid_input, "line {}, column {} of the grammar: {}", line, at_ - line_begin + 1, what);
  }

  // Skips blanks and comments; also newlines, where a rule may continue on the next line.
  enum class Newlines : uint8_t { keep, skip };
  void skip_space(Newlines newlines) {
    while (!at_end()) {
      if (peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (peek() == ' ' || peek() == '\t' ||
                 (newlines == Newlines::skip && (peek() == '\n' || peek() == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<std::string> read_name() {
    const size_t begin = at_;
    while (!at_end() && is_name_char(peek())) ++at_;
    if (at_ == begin) return parse_error("expected a rule name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  GrammarBuilder::Rule find_or_declare_rule(const std::string& name) {
    const auto found = rules_.find(name);
    return found != rules_.end() ? found->second : rules_.emplace(name, builder_.declare(name)).first->second;
  }

  Status read_rule() {
    ZINC_TRY(name, read_name());
    skip_space(Newlines::keep);
    if (!text_.substr(at_).starts_with("::=")) return parse_error("expected ::= after the rule name");
    at_ += 3;
    const GrammarBuilder::Rule rule = find_or_declare_rule(name);
    if (builder_.is_defined(rule)) return parse_error(fmt::format("rule '{}' is already defined", name));
    skip_space(Newlines::skip);
    ZINC_TRY(expr, read_choice(0));
    builder_.define(rule, expr);
    if (!at_end() && peek() != '\n' && peek() != '\r') return parse_error("expected the end of the rule");
    return ok_status();
  }

  // An alternative may begin on its own line.
  bool consume_bar(bool is_nested) {
    const size_t before = at_;
    skip_space(Newlines::skip);
    if (consume('|')) return true;
    if (!is_nested) at_ = before;
    return false;
  }

  Result<Expr> read_choice(int depth) {
    if (depth > kMaxNesting) return parse_error("parentheses are nested too deeply");
    std::vector<Expr> parts;
    do {
      skip_space(Newlines::skip);
      ZINC_TRY(part, read_sequence(depth));
      parts.push_back(part);
    } while (consume_bar(depth > 0));
    return parts.size() == 1 ? parts.front() : builder_.choice(std::move(parts));
  }

  Result<Expr> read_sequence(int depth) {
    std::vector<Expr> parts;
    const Newlines newlines = depth > 0 ? Newlines::skip : Newlines::keep;
    for (skip_space(newlines); !at_end(); skip_space(newlines)) {
      const char c = peek();
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      ZINC_TRY(item, read_item(depth));
      ZINC_TRY(repeated, read_repetition(item));
      parts.push_back(repeated);
    }
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> read_item(int depth) {
    if (consume('"')) return read_literal();
    if (consume('[')) return read_class();
    if (consume('.')) return builder_.chars(complement({}));
    if (consume('(')) {
      ZINC_TRY(inside, read_choice(depth + 1));
      if (!consume(')')) return parse_error("expected )");
      return inside;
    }
    if (!is_name_char(peek()))
      return parse_error("expected a quoted string, a character class [ ], a group ( ) or a rule name");
    ZINC_TRY(name, read_name());
    return builder_.rule(find_or_declare_rule(name));
  }

  Result<Expr> read_literal() {
    std::string bytes;
    while (!consume('"')) {
      if (at_end() || peek() == '\n') return parse_error("unterminated string");
      ZINC_TRY(c, read_char());
      append_utf8(bytes, c);
    }
    return builder_.text(bytes);
  }

  Result<Expr> read_class() {
    const bool is_negated = consume('^');
    CharRanges ranges;
    while (!consume(']')) {
      if (at_end() || peek() == '\n') return parse_error("unterminated character class");
      ZINC_TRY(first, read_char());
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        ZINC_TRY(read, read_char());
        last = read;
        if (last < first) return parse_error("invalid character range: its end is before its start");
      }
      ranges.push_back({first, last});
    }
    return builder_.chars(is_negated ? complement(std::move(ranges)) : std::move(ranges));
  }

  Result<char32_t> read_char() {
    if (!consume('\\')) {
      const Utf8Char next = next_utf8(text_.substr(at_));
      if (!next.valid) return parse_error("invalid UTF-8");
      at_ += static_cast<size_t>(next.n_bytes);
      return next.code;
    }
    const char c = peek();
    if (!at_end()) ++at_;
    switch (c) {
      case 'x':
        return read_hex(2);
      case 'u':
        return read_hex(4);
      case 'U':
        return read_hex(8);
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        return parse_error(
            "unknown escape; supported are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  Result<char32_t> read_hex(int n_digits) {
    char32_t code = 0;
    for (int i = 0; i < n_digits; ++i, ++at_) {
      const char c = peek();
      const int digit = is_digit(c)              ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) return parse_error(fmt::format("expected {} hexadecimal digits", n_digits));
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return parse_error("not a valid Unicode code point");
    return code;
  }

  bool is_repetition() const { return peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{'; }

  Result<Expr> read_repetition(Expr item) {
    if (!is_repetition()) return item;
    if (consume('*')) {
      item = builder_.repeat(item, 0, GrammarBuilder::kNoLimit);
    } else if (consume('+')) {
      item = builder_.repeat(item, 1, GrammarBuilder::kNoLimit);
    } else if (consume('?')) {
      item = builder_.optional(item);
    } else {
      consume('{');
      ZINC_TRY(counted, read_times(item));
      item = counted;
    }
    if (is_repetition()) return parse_error("a repetition directly follows a repetition; put the first in parentheses");
    return item;
  }

  Result<Expr> read_times(Expr item) {
    skip_space(Newlines::keep);
    ZINC_TRY(min, read_number());
    int max = min;
    skip_space(Newlines::keep);
    if (consume(',')) {
      skip_space(Newlines::keep);
      max = GrammarBuilder::kNoLimit;
      if (is_digit(peek())) {
        ZINC_TRY(read, read_number());
        max = read;
        if (max < min) return parse_error("the maximum count is less than the minimum");
      }
    }
    skip_space(Newlines::keep);
    if (!consume('}')) return parse_error("expected }");
    return builder_.repeat(item, min, max);
  }

  Result<int> read_number() {
    if (!is_digit(peek())) return parse_error("expected a number");
    int number = 0;
    for (; is_digit(peek()); ++at_) {
      number = number * 10 + (peek() - '0');
      if (number > kMaxRepeats)
        return parse_error(fmt::format("the repeat count is over the limit of {}", kMaxRepeats));
    }
    return number;
  }

  std::string_view text_;
  size_t at_ = 0;
  GrammarBuilder builder_;
  std::map<std::string, GrammarBuilder::Rule> rules_;
};

}  // namespace

Result<Grammar> parse_gbnf(std::string_view text) { return GbnfParser(text).parse(); }

}  // namespace zinc
