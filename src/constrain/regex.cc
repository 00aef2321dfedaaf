#include "constrain/regex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/unicode_category.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
constexpr int kNoLimit = GrammarBuilder::kNoLimit;
constexpr int kMaxRepeats = 1 << 14;
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxNodes = 1 << 16;

const CharRanges kDigits = {{'0', '9'}};
const CharRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharRanges kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharRanges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

CharRanges without(const CharRanges& ranges, char32_t c) {
  CharRanges others = complement(ranges);
  others.push_back({c, c});
  return complement(std::move(others));
}

CharRanges chars_of_class(uint8_t wanted) {
  CharRanges out;
  for (char32_t c = 0; c < kUnicodeCodes; ++c) {
    if ((unicode_class(c) & wanted) == 0) continue;
    if (!out.empty() && out.back().last + 1 == c) {
      out.back().last = c;
    } else {
      out.push_back({c, c});
    }
  }
  return out;
}

// A general category of Unicode. The table has no subcategories: for those only common scripts are known, and
// characters outside of them are treated as neither in the category nor outside.
struct UnicodeProperty {
  std::string_view name, long_name;
  uint8_t category;              // that it is, or is part of
  CharRanges common_chars = {};  // of a subcategory
};
const UnicodeProperty kProperties[] = {
    {"L", "Letter", kLetter},
    {"N", "Number", kNumber},
    {"M", "Mark", kMark},
    {"P", "Punctuation", kPunctuation},
    {"S", "Symbol", kSymbol},
    {"Z",
     "Separator",
     kSpace,
     {{' ', ' '},
      {0xA0, 0xA0},
      {0x1680, 0x1680},
      {0x2000, 0x200A},
      {0x2028, 0x2029},
      {0x202F, 0x202F},
      {0x205F, 0x205F},
      {0x3000, 0x3000}}},
    {"Lu",
     "Uppercase_Letter",
     kLetter,
     {{'A', 'Z'}, {0xC0, 0xD6}, {0xD8, 0xDE}, {0x391, 0x3A1}, {0x3A3, 0x3AB}, {0x400, 0x42F}}},
    {"Ll", "Lowercase_Letter", kLetter, {{'a', 'z'}, {0xDF, 0xF6}, {0xF8, 0xFF}, {0x3AC, 0x3CE}, {0x430, 0x45F}}},
    {"Nd", "Decimal_Number", kNumber, {{'0', '9'}, {0x660, 0x669}, {0x966, 0x96F}, {0xFF10, 0xFF19}}},
};

struct Node {
  enum class Kind : uint8_t { chars, sequence, choice, repeat } kind;
  CharRanges ranges = {};
  std::vector<int> parts = {};
  int min = 1, max = 1;
  LengthLimits lengths = {};  // of the matched text
};

int64_t sum(int64_t a, int64_t b) { return a == kNoLimit || b == kNoLimit ? kNoLimit : a + b; }
// Lengths beyond any supported limit count as unlimited.
int64_t product(int64_t a, int64_t b) {
  constexpr int64_t kEndless = int64_t{1} << 31;
  if (a == 0 || b == 0) return 0;
  return a == kNoLimit || b == kNoLimit || a > kEndless / b ? int64_t{kNoLimit} : a * b;
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {}

  Result<int> parse() {
    ZINC_TRY(root, choice(0));
    if (at_ < pattern_.size()) return parse_error("unmatched ')'");
    return root;
  }
  // The same node with length limits. Fails if more than one part of a sequence has a variable length.
  Result<int> with_limits(int node, const LengthLimits& limits);
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }

 private:
  Error parse_error(std::string_view why) const {
    return fail(ErrorCode::invalid_input, "{}, at byte {} of the pattern", why, at_);
  }

  bool is_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool consume(std::string_view text) {
    if (!is_at(text)) return false;
    at_ += text.size();
    return true;
  }

  int add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int chars(CharRanges ranges) {
    return add({.kind = Node::Kind::chars, .ranges = std::move(ranges), .lengths = {.min = 1, .max = 1}});
  }
  int sequence(std::vector<int> parts) {
    LengthLimits lengths = {.min = 0, .max = 0};
    for (const int part : parts) {
      lengths.min += node(part).lengths.min;
      lengths.max = sum(lengths.max, node(part).lengths.max);
    }
    return add({.kind = Node::Kind::sequence, .parts = std::move(parts), .lengths = lengths});
  }
  int choice_of(std::vector<int> parts) {
    if (parts.size() == 1) return parts.front();
    LengthLimits lengths = node(parts.front()).lengths;
    for (const int part : parts) {
      const LengthLimits& other = node(part).lengths;
      lengths.min = std::min(lengths.min, other.min);
      lengths.max = lengths.max == kNoLimit || other.max == kNoLimit ? kNoLimit : std::max(lengths.max, other.max);
    }
    return add({.kind = Node::Kind::choice, .parts = std::move(parts), .lengths = lengths});
  }
  int repeated(int part, int min, int max) {
    const LengthLimits& part_lengths = node(part).lengths;
    const int64_t shortest = product(part_lengths.min, min);
    const LengthLimits lengths = {.min = shortest == kNoLimit ? int64_t{1} << 31 : shortest,
                                  .max = product(part_lengths.max, max)};
    return add({.kind = Node::Kind::repeat, .parts = {part}, .min = min, .max = max, .lengths = lengths});
  }
  int any_text() { return repeated(chars(complement({})), 0, kNoLimit); }

  Result<int> choice(int depth);
  Result<int> alternative(int depth);
  Result<int> atom(int depth);
  Result<int> group(int depth);
  Result<int> quantified(int part);
  Result<std::pair<int, int>> counts();
  std::optional<int> number();
  Result<CharRanges> char_class();
  enum class Set : uint8_t { positive, negated };  // negated: the complement of the characters is used
  Result<CharRanges> class_member(Set set);
  Result<CharRanges> escape(Set set);
  Result<CharRanges> property(bool is_negated, Set set);
  Result<char32_t> escaped_char();
  Result<char32_t> hex(size_t n_digits);

  std::string_view pattern_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
};

Result<int> RegexParser::choice(int depth) {
  if (depth > kMaxDepth) return parse_error("groups are nested too deeply");
  std::vector<int> alternatives;
  do {
    ZINC_TRY(part, alternative(depth));
    alternatives.push_back(part);
  } while (consume("|"));
  return choice_of(std::move(alternatives));
}

// A top-level alternative matches anywhere in the string unless anchored by ^ and $.
Result<int> RegexParser::alternative(int depth) {
  std::vector<int> parts;
  const bool is_outermost = depth == 0;
  if (is_outermost && !consume("^")) parts.push_back(any_text());
  bool is_anchored = false;
  while (at_ < pattern_.size() && !is_at("|") && !is_at(")")) {
    if (is_outermost && consume("$")) {
      is_anchored = true;
      if (at_ < pattern_.size() && !is_at("|")) return parse_error("'$' is supported only at the end of a pattern");
      break;
    }
    ZINC_TRY(part, atom(depth));
    ZINC_TRY(with_counts, quantified(part));
    parts.push_back(with_counts);
    if (static_cast<int64_t>(nodes_.size()) > kMaxNodes) return parse_error("the pattern is too large");
  }
  if (is_outermost && !is_anchored) parts.push_back(any_text());
  return sequence(std::move(parts));
}

Result<int> RegexParser::atom(int depth) {
  if (is_at("(")) return group(depth);
  if (consume(".")) return chars(complement(kLineEnds));
  if (is_at("^") || is_at("$")) return parse_error("'^' and '$' are supported only at the start and end of a pattern");
  if (is_at("*") || is_at("+") || is_at("?") || is_at("{")) return parse_error("nothing to repeat");
  if (is_at("[") || is_at("\\")) {
    const bool is_class = consume("[");
    ZINC_TRY(ranges, is_class ? char_class() : escape(Set::positive));
    return chars(std::move(ranges));
  }
  const Utf8Char c = next_utf8(pattern_.substr(at_));
  if (!c.valid) return parse_error("the pattern is not valid UTF-8");
  at_ += static_cast<size_t>(c.n_bytes);
  return chars({{c.code, c.code}});
}

Result<int> RegexParser::group(int depth) {
  consume("(");
  if (is_at("?=") || is_at("?!") || is_at("?<=") || is_at("?<!")) return parse_error("lookaround is not supported");
  if (consume("?<")) {
    const size_t end = pattern_.find('>', at_);
    if (end == std::string_view::npos) return parse_error("unterminated group name");
    at_ = end + 1;
  } else if (!consume("?:") && is_at("?")) {
    return parse_error("groups with flags are not supported");
  }
  ZINC_TRY(inner, choice(depth + 1));
  if (!consume(")")) return parse_error("unterminated group");
  return inner;
}

Result<int> RegexParser::quantified(int part) {
  std::pair<int, int> times;
  if (consume("*")) {
    times = {0, kNoLimit};
  } else if (consume("+")) {
    times = {1, kNoLimit};
  } else if (consume("?")) {
    times = {0, 1};
  } else if (consume("{")) {
    ZINC_TRY(read, counts());
    times = read;
  } else {
    return part;
  }
  consume("?");  // lazy: matches the same texts
  return repeated(part, times.first, times.second);
}

Result<std::pair<int, int>> RegexParser::counts() {
  const std::optional<int> min = number();
  std::optional<int> max = min;
  if (consume(",")) max = is_at("}") ? std::optional<int>(kNoLimit) : number();
  if (!min || !max || !consume("}")) {
    return parse_error(fmt::format("expected a repeat count {{n}}, {{n,}} or {{n,m}} of at most {}", kMaxRepeats));
  }
  if (*max != kNoLimit && *max < *min) return parse_error("the maximum repeat count is less than the minimum");
  return std::pair{*min, *max};
}

std::optional<int> RegexParser::number() {
  const size_t begin = at_;
  int value = 0;
  for (; at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_) {
    value = value * 10 + (pattern_[at_] - '0');
    if (value > kMaxRepeats) return std::nullopt;
  }
  return at_ > begin ? std::optional(value) : std::nullopt;
}

Result<CharRanges> RegexParser::char_class() {
  const bool is_negated = consume("^");
  const Set set = is_negated ? Set::negated : Set::positive;
  CharRanges all;
  while (!consume("]")) {
    ZINC_TRY(from, class_member(set));
    const bool is_range = is_at("-") && !is_at("-]");
    if (is_range) {
      consume("-");
      ZINC_TRY(to, class_member(set));
      const auto is_single_char = [](const CharRanges& r) {
        return r.size() == 1 && r.front().first == r.front().last;
      };
      if (!is_single_char(from) || !is_single_char(to) || from.front().first > to.front().first) {
        return parse_error("invalid character range");
      }
      from.front().last = to.front().first;
    }
    all.insert(all.end(), from.begin(), from.end());
  }
  return is_negated ? complement(std::move(all)) : all;
}

Result<CharRanges> RegexParser::class_member(Set set) {
  if (at_ == pattern_.size()) return parse_error("unterminated character class");
  if (is_at("\\b")) {
    consume("\\b");
    return CharRanges{{'\b', '\b'}};
  }
  if (is_at("\\")) return escape(set);
  const Utf8Char c = next_utf8(pattern_.substr(at_));
  if (!c.valid) return parse_error("the pattern is not valid UTF-8");
  at_ += static_cast<size_t>(c.n_bytes);
  return CharRanges{{c.code, c.code}};
}

// \p{L}, \P{L}. Of a subcategory only a subset is known, and of its complement: never more than the pattern allows.
Result<CharRanges> RegexParser::property(bool is_negated, Set set) {
  const size_t end = pattern_.find('}', at_);
  if (!consume("{") || end == std::string_view::npos) return parse_error("expected a category as in \\p{L}");
  std::string_view name = pattern_.substr(at_, end - at_);
  if (const size_t equals = name.find('='); equals != std::string_view::npos) {
    const std::string_view key = name.substr(0, equals);
    if (key == "gc" || key == "General_Category") name.remove_prefix(equals + 1);
  }
  const auto* const found = std::ranges::find_if(kProperties, [&](const UnicodeProperty& property) {
    return property.name == name || property.long_name == name;
  });
  if (found == std::end(kProperties)) return parse_error("unsupported Unicode property");
  if (found->name.size() > 1 && set == Set::negated) {
    return parse_error("subcategories of Unicode are not supported in a negated class");
  }
  at_ = end + 1;
  if (!is_negated) return found->common_chars.empty() ? chars_of_class(found->category) : found->common_chars;
  const bool is_exact = found->name == "Z";
  return complement(is_exact ? found->common_chars : chars_of_class(found->category));
}

Result<CharRanges> RegexParser::escape(Set set) {
  consume("\\");
  if (consume("d")) return kDigits;
  if (consume("D")) return complement(kDigits);
  if (consume("w")) return kWord;
  if (consume("W")) return complement(kWord);
  if (consume("s")) return kSpaces;
  if (consume("S")) return complement(kSpaces);
  if (consume("p")) return property(/*is_negated=*/false, set);
  if (consume("P")) return property(/*is_negated=*/true, set);
  ZINC_TRY(c, escaped_char());
  return CharRanges{{c, c}};
}

Result<char32_t> RegexParser::escaped_char() {
  constexpr std::string_view kNames = "nrtvf0", kMeanings("\n\r\t\v\f\0", 6);
  if (at_ == pattern_.size()) return parse_error("incomplete escape at the end of the pattern");
  const char c = pattern_[at_++];
  const bool is_digit_next = at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9';
  if (const size_t i = kNames.find(c); i != std::string_view::npos && !(c == '0' && is_digit_next)) {
    return static_cast<char32_t>(kMeanings[i]);
  }
  if (c == 'x') return hex(2);
  if (c == 'u') {
    if (consume("{")) {
      const size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos || end - at_ > 6) return parse_error("unterminated \\u{");
      ZINC_TRY(code, hex(end - at_));
      consume("}");
      return code;
    }
    ZINC_TRY(code, hex(4));
    if (code < 0xD800 || code > 0xDBFF || !consume("\\u")) return code;
    ZINC_TRY(low, hex(4));
    if (low < 0xDC00 || low > 0xDFFF) return parse_error("unpaired surrogate");
    return char32_t{0x10000} + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  const bool is_ascii_punctuation =
      static_cast<uint8_t>(c) < 0x80 && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
  if (!is_ascii_punctuation) {
    --at_;
    return parse_error("unsupported escape");
  }
  return static_cast<char32_t>(c);
}

Result<char32_t> RegexParser::hex(size_t n_digits) {
  char32_t code = 0;
  for (size_t i = 0; i < n_digits; ++i) {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    const size_t digit = at_ < pattern_.size() ? kHex.find(pattern_[at_]) : std::string_view::npos;
    if (digit == std::string_view::npos) return parse_error("expected hexadecimal digits in an escape");
    code = code * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    ++at_;
  }
  if (n_digits == 0 || code > 0x10FFFF) return parse_error("not a valid Unicode code point");
  return code;
}

Result<int> RegexParser::with_limits(int index, const LengthLimits& limits) {
  const Node at = node(index);
  const auto [min, max] = at.lengths;
  if (min >= limits.min && (limits.max == kNoLimit || (max != kNoLimit && max <= limits.max))) return index;
  if ((limits.max != kNoLimit && min > limits.max) || (max != kNoLimit && max < limits.min)) {
    return fail(ErrorCode::invalid_input, "no matching string satisfies the length limits");
  }
  if (at.kind == Node::Kind::choice) {
    std::vector<int> parts;
    for (const int part : at.parts) {
      const LengthLimits& lengths = node(part).lengths;
      const bool is_too_long = limits.max != kNoLimit && lengths.min > limits.max;
      if (is_too_long || (lengths.max != kNoLimit && lengths.max < limits.min)) continue;
      ZINC_TRY(limited, with_limits(part, limits));
      parts.push_back(limited);
    }
    if (parts.empty()) return fail(ErrorCode::invalid_input, "no matching string satisfies the length limits");
    return choice_of(std::move(parts));
  }
  const auto is_fixed = [&](int part) { return node(part).lengths.min == node(part).lengths.max; };
  const auto reduced_by = [](const LengthLimits& all, int64_t n) {
    return LengthLimits{.min = std::max<int64_t>(0, all.min - n), .max = all.max == kNoLimit ? kNoLimit : all.max - n};
  };
  if (at.kind == Node::Kind::sequence && std::ranges::count_if(at.parts, is_fixed) + 1 == std::ssize(at.parts)) {
    std::vector<int> parts = at.parts;
    int& part = *std::ranges::find_if_not(parts, is_fixed);
    ZINC_TRY(limited, with_limits(part, reduced_by(limits, min - node(part).lengths.min)));
    part = limited;
    return sequence(std::move(parts));
  }
  if (at.kind == Node::Kind::repeat && is_fixed(at.parts.front())) {
    const int64_t length = node(at.parts.front()).lengths.min;
    const int64_t min_count = std::max<int64_t>(at.min, (limits.min + length - 1) / length);
    const int64_t n_within_limit = limits.max == kNoLimit ? at.max : limits.max / length;
    const int64_t max_count = at.max == kNoLimit ? n_within_limit : std::min<int64_t>(at.max, n_within_limit);
    if (max_count != kNoLimit && min_count > max_count)
      return fail(ErrorCode::invalid_input, "no matching string satisfies the length limits");
    return repeated(at.parts.front(), static_cast<int>(min_count), static_cast<int>(max_count));
  }
  return fail(ErrorCode::invalid_input,
              "length limits are not supported for a pattern with several variable-length parts");
}

// Translates nodes to expressions; equal character sets share one rule.
class RegexTranslator {
 public:
  RegexTranslator(GrammarBuilder& builder, const RegexParser& parser, StringSyntax syntax)
      : builder_(builder), parser_(parser), syntax_(syntax) {}

  Expr write(int index) {
    const Node& at = parser_.node(index);
    if (at.kind == Node::Kind::chars) return one_char(at.ranges);
    std::vector<Expr> parts;
    for (const int part : at.parts) parts.push_back(write(part));
    if (at.kind == Node::Kind::repeat) return builder_.repeat(parts.front(), at.min, at.max);
    return at.kind == Node::Kind::choice ? builder_.choice(std::move(parts)) : builder_.sequence(std::move(parts));
  }

 private:
  Expr one_char(const CharRanges& ranges) {
    const auto [found, is_new] = chars_.try_emplace(ranges);
    if (is_new) {
      found->second = builder_.declare("character");
      builder_.define(found->second,
                      syntax_ == StringSyntax::json
                          ? char_in_json_string(builder_, ranges)
                          : builder_.chars(syntax_ == StringSyntax::raw ? without(ranges, '<') : ranges));
    }
    return builder_.rule(found->second);
  }

  GrammarBuilder& builder_;
  const RegexParser& parser_;
  StringSyntax syntax_;
  std::map<CharRanges, GrammarBuilder::Rule> chars_;
};

}  // namespace

Expr char_in_json_string(GrammarBuilder& builder, const CharRanges& ranges) {
  constexpr std::string_view kEscaped("\"\\\b\f\n\r\t"), kNames("\"\\bfnrt");
  const CharRanges not_raw = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  CharRanges others = complement(ranges);
  others.insert(others.end(), not_raw.begin(), not_raw.end());
  std::vector<Expr> spellings = {builder.chars(complement(std::move(others)))};

  CharRanges names, low[2];  // after '\', and after '\u000' and '\u001'
  const auto add_escape = [&](char32_t c) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const size_t name = kEscaped.find(static_cast<char>(c));
    const bool has_name = name != std::string_view::npos;
    const auto written = static_cast<char32_t>(has_name ? kNames[name] : kHex[c % 16]);
    (has_name ? names : low[c / 16]).push_back({written, written});
  };
  for (char32_t c = 0; c <= '\\'; ++c) {
    const auto has = [c](const CharRange& range) { return range.first <= c && c <= range.last; };
    if (std::ranges::any_of(not_raw, has) && std::ranges::any_of(ranges, has)) add_escape(c);
  }
  if (!names.empty()) spellings.push_back(builder.sequence({builder.text("\\"), builder.chars(names)}));
  for (const int high : {0, 1}) {
    if (low[high].empty()) continue;
    spellings.push_back(builder.sequence({builder.text(fmt::format("\\u00{}", high)), builder.chars(low[high])}));
  }
  return builder.choice(std::move(spellings));
}

Result<Expr> regex_grammar(GrammarBuilder& builder, std::string_view pattern, const LengthLimits& limits,
                           StringSyntax syntax) {
  RegexParser parser(pattern);
  ZINC_TRY(root, parser.parse());
  ZINC_TRY(fits, parser.with_limits(root, limits));
  return RegexTranslator(builder, parser, syntax).write(fits);
}

Result<Grammar> regex_text_grammar(std::string_view pattern) {
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.ends_with('$') && !pattern.ends_with("\\$")) pattern.remove_suffix(1);
  const std::string whole = fmt::format("^(?:{})$", pattern);
  RegexParser parser(whole);
  ZINC_TRY(parsed, parser.parse());
  GrammarBuilder builder;
  const GrammarBuilder::Rule root = builder.declare("root");
  builder.define(root, RegexTranslator(builder, parser, StringSyntax::plain).write(parsed));
  return builder.finish(root);
}

}  // namespace zinc
