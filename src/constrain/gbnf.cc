#include "constrain/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr int kMostBrackets = 64;  // inside each other
constexpr int kMostTimes = 100'000;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<Grammar> parse() {
    for (skip_space(true); !at_end(); skip_space(true)) {
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
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Error wrong(std::string_view what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    return fail(ErrorCode::invalid_input, "line {}, column {} of the grammar: {}", line, at_ - line_begin + 1, what);
  }

  // Blanks and comments; ends of lines where a rule goes on behind them.
  void skip_space(bool over_lines) {
    while (!at_end()) {
      if (peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (peek() == ' ' || peek() == '\t' || (over_lines && (peek() == '\n' || peek() == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<std::string> read_name() {
    const size_t begin = at_;
    while (!at_end() && is_name_char(peek())) ++at_;
    if (at_ == begin) return wrong("expected the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }

  GrammarBuilder::Rule rule_of(const std::string& name) {
    const auto found = rules_.find(name);
    return found != rules_.end() ? found->second : rules_.emplace(name, builder_.declare(name)).first->second;
  }

  Status read_rule() {
    ZINC_TRY(name, read_name());
    skip_space(false);
    if (!text_.substr(at_).starts_with("::=")) return wrong("expected ::= behind the name of a rule");
    at_ += 3;
    const GrammarBuilder::Rule rule = rule_of(name);
    if (builder_.is_defined(rule)) return wrong(fmt::format("the rule '{}' is there already", name));
    skip_space(true);
    ZINC_TRY(expr, read_choice(0));
    builder_.define(rule, expr);
    if (!at_end() && peek() != '\n' && peek() != '\r') return wrong("expected the end of the rule");
    return ok_status();
  }

  // An alternative may begin on a line of its own.
  bool take_bar(bool in_brackets) {
    const size_t before = at_;
    skip_space(true);
    if (take('|')) return true;
    if (!in_brackets) at_ = before;
    return false;
  }

  Result<Expr> read_choice(int n_brackets) {
    if (n_brackets > kMostBrackets) return wrong("too many brackets inside each other");
    std::vector<Expr> parts;
    do {
      skip_space(true);
      ZINC_TRY(part, read_sequence(n_brackets));
      parts.push_back(part);
    } while (take_bar(n_brackets > 0));
    return parts.size() == 1 ? parts.front() : builder_.choice(std::move(parts));
  }

  Result<Expr> read_sequence(int n_brackets) {
    std::vector<Expr> parts;
    for (skip_space(n_brackets > 0); !at_end(); skip_space(n_brackets > 0)) {
      const char c = peek();
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      ZINC_TRY(item, read_item(n_brackets));
      ZINC_TRY(repeated, read_repetition(item));
      parts.push_back(repeated);
    }
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> read_item(int n_brackets) {
    if (take('"')) return read_literal();
    if (take('[')) return read_class();
    if (take('.')) return builder_.chars(all_but({}));
    if (take('(')) {
      ZINC_TRY(inside, read_choice(n_brackets + 1));
      if (!take(')')) return wrong("expected )");
      return inside;
    }
    if (!is_name_char(peek())) return wrong("expected a text in quotes, a class in [ ], a group in ( ) or a rule");
    ZINC_TRY(name, read_name());
    return builder_.rule(rule_of(name));
  }

  Result<Expr> read_literal() {
    std::string bytes;
    while (!take('"')) {
      if (at_end() || peek() == '\n') return wrong("the text in quotes has no end");
      ZINC_TRY(c, read_char());
      append_utf8(bytes, c);
    }
    return builder_.text(bytes);
  }

  Result<Expr> read_class() {
    const bool is_negated = take('^');
    CharRanges ranges;
    while (!take(']')) {
      if (at_end() || peek() == '\n') return wrong("the class in [ ] has no end");
      ZINC_TRY(first, read_char());
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        ZINC_TRY(read, read_char());
        last = read;
        if (last < first) return wrong("a range that ends before it begins");
      }
      ranges.push_back({first, last});
    }
    return builder_.chars(is_negated ? all_but(std::move(ranges)) : std::move(ranges));
  }

  Result<char32_t> read_char() {
    if (!take('\\')) {
      const Utf8Char next = next_utf8(text_.substr(at_));
      if (!next.valid) return wrong("these bytes are no UTF-8");
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
        return wrong("no such escape: there are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
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
      if (digit < 0) return wrong(fmt::format("expected {} hexadecimal digits", n_digits));
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return wrong("no character has this number");
    return code;
  }

  bool is_repetition() const { return peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{'; }

  Result<Expr> read_repetition(Expr item) {
    if (!is_repetition()) return item;
    if (take('*')) {
      item = builder_.repeat(item, 0, GrammarBuilder::kNoLimit);
    } else if (take('+')) {
      item = builder_.repeat(item, 1, GrammarBuilder::kNoLimit);
    } else if (take('?')) {
      item = builder_.optional(item);
    } else {
      take('{');
      ZINC_TRY(counted, read_times(item));
      item = counted;
    }
    if (is_repetition()) return wrong("a repetition of a repetition: put brackets around the first");
    return item;
  }

  Result<Expr> read_times(Expr item) {
    skip_space(false);
    ZINC_TRY(min, read_number());
    int max = min;
    skip_space(false);
    if (take(',')) {
      skip_space(false);
      max = GrammarBuilder::kNoLimit;
      if (is_digit(peek())) {
        ZINC_TRY(read, read_number());
        max = read;
        if (max < min) return wrong("the most times are fewer than the least");
      }
    }
    skip_space(false);
    if (!take('}')) return wrong("expected }");
    return builder_.repeat(item, min, max);
  }

  Result<int> read_number() {
    if (!is_digit(peek())) return wrong("expected a number");
    int number = 0;
    for (; is_digit(peek()); ++at_) {
      number = number * 10 + (peek() - '0');
      if (number > kMostTimes) return wrong(fmt::format("more than {} times", kMostTimes));
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
