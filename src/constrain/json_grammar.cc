#include "constrain/json_grammar.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "constrain/number_range.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
constexpr int kMaxBlanks = 20;

const CharRanges kNeedEscapes = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

Expr blanks(GrammarBuilder& b) {
  const Expr indent = b.repeat(b.chars({{' ', ' '}, {'\t', '\t'}}), 0, kMaxBlanks);
  return b.choice({b.text(""), b.text(" "), b.sequence({b.text("\n"), indent})});
}

}  // namespace

JsonGrammar::JsonGrammar(GrammarBuilder& builder, std::optional<RawStrings> raw_strings)
    : builder_(builder),
      raw_strings_(std::move(raw_strings)),
      space_(define("space", raw_strings_ ? builder.text("") : blanks(builder))),
      colon_(define("colon", builder.sequence({space(), builder.text(":"), space()}))),
      string_char_(define("character", any_string_char())),
      string_(define("string", any_string())),
      number_(define("number", any_number(builder))),
      integer_(define("integer", integer_between(builder, -kMaxInteger, kMaxInteger))),
      object_(builder.declare("object")),
      array_(builder.declare("array")),
      value_(builder.declare("value")) {
  builder.define(object_, any_object(builder.declare("member")));
  builder.define(array_, any_array(builder.declare("element")));
  builder.define(value_, builder.choice({object(), array(), string(), number(), builder.text("true"),
                                         builder.text("false"), builder.text("null")}));
}

JsonGrammar::Expr JsonGrammar::any_string() {
  if (raw_strings_) return raw_string(builder_, *raw_strings_);
  return quoted(builder_.repeat(string_char(), 0, GrammarBuilder::kNoLimit));
}

JsonGrammar::Expr JsonGrammar::name(std::string_view name) const {
  const bool is_bare = raw_strings_ && is_identifier(name);
  return builder_.text(is_bare ? std::string(name) : to_json(json::string(name)));
}

JsonGrammar::Rule JsonGrammar::define(const char* name, Expr expr) {
  const Rule rule = builder_.declare(name);
  builder_.define(rule, expr);
  return rule;
}

// Surrogates may be escaped only in pairs.
Expr JsonGrammar::any_string_char() {
  GrammarBuilder& b = builder_;
  const auto hex = [&](int n) { return b.repeat(b.chars({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}), n, n); };
  const auto one_of = [&](std::string_view chars) {
    CharRanges ranges;
    for (const char c : chars) ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    return b.chars(std::move(ranges));
  };
  const Expr pair =
      b.sequence({one_of("dD"), one_of("89abAB"), hex(2), b.text("\\u"), one_of("dD"), one_of("cdefCDEF"), hex(2)});
  const Expr unit = b.choice({b.sequence({one_of("0123456789abcefABCEF"), hex(3)}),
                              b.sequence({one_of("dD"), one_of("01234567"), hex(2)}), pair});
  return b.choice({b.chars(complement(kNeedEscapes)), b.sequence({b.text("\\"), one_of("\"\\/bfnrt")}),
                   b.sequence({b.text("\\u"), unit})});
}

Expr JsonGrammar::any_object(Rule member) {
  GrammarBuilder& b = builder_;
  const Expr more = b.choice({b.text("}"), b.sequence({b.text(","), space(), b.rule(member)})});
  const Expr any_name = raw_strings_ ? identifier_except(b, {}) : string();
  b.define(member, b.sequence({any_name, colon(), b.rule(value_), space(), more}));
  return b.sequence({b.text("{"), space(), b.choice({b.text("}"), b.rule(member)})});
}

Expr JsonGrammar::any_array(Rule element) {
  GrammarBuilder& b = builder_;
  const Expr more = b.choice({b.text("]"), b.sequence({b.text(","), space(), b.rule(element)})});
  b.define(element, b.sequence({b.rule(value_), space(), more}));
  return b.sequence({b.text("["), space(), b.choice({b.text("]"), b.rule(element)})});
}

namespace {

// Names that may be formed from `allowed` and end with `end`, except the listed ones. A trie of the names with one rule
// per node: a name may end at a node that is not a listed name, or leave the trie.
Expr other_names(GrammarBuilder& b, std::span<const std::string_view> names, const CharRanges& excluded,
                 std::string_view end, int max_rest) {
  struct TrieNode {
    std::map<char32_t, size_t> next;
    bool is_name = false;
  };
  std::vector<TrieNode> trie(1);
  for (std::string_view name : names) {
    size_t at = 0;
    while (!name.empty()) {
      const Utf8Char c = next_utf8(name);
      name.remove_prefix(static_cast<size_t>(c.n_bytes));
      const auto [found, is_new] = trie[at].next.try_emplace(c.code, trie.size());
      at = found->second;
      if (is_new) trie.emplace_back();
    }
    trie[at].is_name = true;
  }
  std::vector<GrammarBuilder::Rule> rules;
  for (size_t i = 0; i < trie.size(); ++i) rules.push_back(b.declare("other name"));
  const GrammarBuilder::Rule tail = b.declare("rest of a name");
  b.define(tail, b.sequence({b.repeat(b.chars(complement(excluded)), 0, max_rest), b.text(end)}));
  for (size_t i = 0; i < trie.size(); ++i) {
    std::vector<Expr> alternatives;
    CharRanges others = excluded;
    for (const auto& [c, to] : trie[i].next) {
      others.push_back({c, c});
      const auto has = [c = c](const CharRange& range) { return range.first <= c && c <= range.last; };
      if (std::ranges::any_of(excluded, has)) continue;
      alternatives.push_back(b.sequence({b.chars({{c, c}}), b.rule(rules[to])}));
    }
    if (!trie[i].is_name) alternatives.push_back(b.text(end));
    // ASCII and the rest apart: nearly all nodes have the same set of the second kind, which is then shared.
    for (const CharRange other_half : {CharRange{0x80, 0x10FFFF}, CharRange{0, 0x7F}}) {
      CharRanges left_out = others;
      left_out.push_back(other_half);
      alternatives.push_back(b.sequence({b.chars(complement(std::move(left_out))), b.rule(tail)}));
    }
    b.define(rules[i], b.choice(std::move(alternatives)));
  }
  return b.rule(rules.front());
}

const CharRanges kIdentifier = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {'-', '-'}, {'.', '.'}, {'$', '$'}};
constexpr int kMaxIdentifier = 63;

}  // namespace

Expr JsonGrammar::name_except(std::span<const std::string_view> names) const {
  if (raw_strings_) return identifier_except(builder_, names);
  return builder_.sequence(
      {builder_.text("\""), other_names(builder_, names, kNeedEscapes, "\"", GrammarBuilder::kNoLimit)});
}

Expr raw_string(GrammarBuilder& builder, const RawStrings& syntax) {
  return builder.sequence(
      {builder.text(syntax.quote), builder.text_without(syntax.excluded), builder.text(syntax.quote)});
}

Expr identifier_except(GrammarBuilder& builder, std::span<const std::string_view> names) {
  std::vector<std::string_view> excluded(names.begin(), names.end());
  excluded.push_back("");
  return other_names(builder, excluded, complement(kIdentifier), "", kMaxIdentifier);
}

bool is_identifier(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::ranges::any_of(kIdentifier, [c](const CharRange& range) {
      return range.first <= static_cast<uint8_t>(c) && static_cast<uint8_t>(c) <= range.last;
    });
  });
}

}  // namespace zinc
