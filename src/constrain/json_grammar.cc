#include "constrain/json_grammar.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

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

JsonGrammar::JsonGrammar(GrammarBuilder& builder)
    : builder_(builder),
      space_(define("space", blanks(builder))),
      colon_(define("colon", builder.sequence({space(), builder.text(":"), space()}))),
      string_char_(define("character", any_string_char())),
      string_(define("string", quoted(builder.repeat(string_char(), 0, GrammarBuilder::kNoLimit)))),
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
  b.define(member, b.sequence({string(), colon(), b.rule(value_), space(), more}));
  return b.sequence({b.text("{"), space(), b.choice({b.text("}"), b.rule(member)})});
}

Expr JsonGrammar::any_array(Rule element) {
  GrammarBuilder& b = builder_;
  const Expr more = b.choice({b.text("]"), b.sequence({b.text(","), space(), b.rule(element)})});
  b.define(element, b.sequence({b.rule(value_), space(), more}));
  return b.sequence({b.text("["), space(), b.choice({b.text("]"), b.rule(element)})});
}

// A trie of the names with one rule per node: the string may end at a node that is not a name, or leave the trie.
Expr JsonGrammar::string_except(std::span<const std::string_view> names) const {
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
  GrammarBuilder& b = builder_;
  const Rule first = b.declare("other name");
  for (size_t i = 1; i < trie.size(); ++i) b.declare("other name");
  const Expr rest = b.repeat(b.chars(complement(kNeedEscapes)), 0, GrammarBuilder::kNoLimit);
  const Rule tail = b.declare("rest of a name");
  b.define(tail, b.sequence({rest, b.text("\"")}));
  for (size_t i = 0; i < trie.size(); ++i) {
    std::vector<Expr> alternatives;
    CharRanges others = kNeedEscapes;
    for (const auto& [c, to] : trie[i].next) {
      others.push_back({c, c});
      const bool needs_escape = c <= 0x1F || c == '"' || c == '\\';
      if (needs_escape) continue;
      alternatives.push_back(b.sequence({b.chars({{c, c}}), b.rule(first + static_cast<Rule>(to))}));
    }
    if (!trie[i].is_name) alternatives.push_back(b.text("\""));
    // ASCII and the rest apart: nearly all nodes have the same set of the second kind, which is then shared.
    for (const CharRange other_half : {CharRange{0x80, 0x10FFFF}, CharRange{0, 0x7F}}) {
      CharRanges excluded = others;
      excluded.push_back(other_half);
      alternatives.push_back(b.sequence({b.chars(complement(std::move(excluded))), b.rule(tail)}));
    }
    b.define(first + static_cast<Rule>(i), b.choice(std::move(alternatives)));
  }
  return b.sequence({b.text("\""), b.rule(first)});
}

}  // namespace zinc
