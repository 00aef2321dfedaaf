#include "constrain/grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr size_t kMaxElements = 1 << 18;
constexpr char32_t kLastChar = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

CharRanges merge_ranges(CharRanges ranges) {
  std::ranges::sort(ranges);
  CharRanges out;
  for (const CharRange& range : ranges) {
    if (range.first > range.last) continue;
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CharRanges without_surrogates(const CharRanges& ranges) {
  CharRanges out;
  for (const auto& [first, last] : ranges) {
    if (first < kFirstSurrogate) out.push_back({first, std::min<char32_t>(last, kFirstSurrogate - 1)});
    if (last > kLastSurrogate)
      out.push_back({std::max<char32_t>(first, kLastSurrogate + 1), std::min(last, kLastChar)});
  }
  return out;
}

int utf8_length(char32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;  // one per UTF-8 byte of a character

ByteRanges bytes_between(char32_t first, char32_t last) {
  std::string a, b;
  append_utf8(a, first);
  append_utf8(b, last);
  ByteRanges out;
  for (size_t i = 0; i < a.size(); ++i) out.emplace_back(static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i]));
  return out;
}

// Splits a range of characters into products of byte ranges: it is cut until the bytes after the first differing one
// span all their values.
void split_utf8(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (first <= end && last > end) {
      split_utf8(first, end, out);
      return split_utf8(end + 1, last, out);
    }
  }
  for (int bits = 6; bits < 6 * utf8_length(first); bits += 6) {
    const char32_t mask = (char32_t{1} << bits) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      split_utf8(first, first | mask, out);
      return split_utf8((first | mask) + 1, last, out);
    }
    if ((last & mask) != mask) {
      split_utf8(first, (last & ~mask) - 1, out);
      return split_utf8(last & ~mask, last, out);
    }
  }
  out.push_back(bytes_between(first, last));
}

}  // namespace

CharRanges complement(CharRanges ranges) {
  CharRanges out;
  char32_t next = 0;
  for (const auto& [first, last] : merge_ranges(std::move(ranges))) {
    if (first > next) out.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLastChar) out.push_back({next, kLastChar});
  return out;
}

GrammarBuilder::Expr GrammarBuilder::add(Node node) {
  size_ += 1 + node.text.size() + node.ranges.size() + node.parts.size();
  if (is_too_large() && !nodes_.empty()) return 0;
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size()) - 1;
}

GrammarBuilder::Expr GrammarBuilder::text(std::string_view bytes) {
  return add({.kind = Kind::text, .text = std::string(bytes)});
}
GrammarBuilder::Expr GrammarBuilder::chars(CharRanges ranges) {
  return add({.kind = Kind::chars, .ranges = without_surrogates(merge_ranges(std::move(ranges)))});
}
GrammarBuilder::Expr GrammarBuilder::sequence(std::vector<Expr> parts) {
  return add({.kind = Kind::sequence, .parts = std::move(parts)});
}
GrammarBuilder::Expr GrammarBuilder::choice(std::vector<Expr> parts) {
  return add({.kind = Kind::choice, .parts = std::move(parts)});
}
GrammarBuilder::Expr GrammarBuilder::repeat(Expr part, int min, int max) {
  return add({.kind = Kind::repeat, .parts = {part}, .min = min, .max = max});
}
GrammarBuilder::Expr GrammarBuilder::rule(Rule rule) { return add({.kind = Kind::rule, .rule = rule}); }

// The Knuth-Morris-Pratt automaton of the marker, one rule per number of matched characters. The transition that would
// complete the marker is left out.
GrammarBuilder::Expr GrammarBuilder::text_without(std::string_view marker) {
  std::vector<char32_t> chars_of;
  while (!marker.empty()) {
    const Utf8Char c = next_utf8(marker);
    chars_of.push_back(c.code);
    marker.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  const size_t n = chars_of.size();
  std::vector<size_t> border(n + 1);  // [i]: length of the longest proper prefix of the first i that is also a suffix
  const auto matched_after = [&](size_t i, char32_t c) {
    while (i > 0 && chars_of[i] != c) i = border[i];
    return chars_of[i] == c ? i + 1 : 0;
  };
  for (size_t i = 1; i < n; ++i) border[i + 1] = matched_after(border[i], chars_of[i]);

  std::vector<Rule> rules;
  for (size_t i = 0; i < n; ++i) rules.push_back(declare("text"));
  for (size_t i = 0; i < n; ++i) {
    std::vector<Expr> alternatives = {text("")};
    CharRanges continuing;
    for (const char32_t c : chars_of) {
      const size_t n_matched = matched_after(i, c);
      const bool is_known = std::ranges::any_of(continuing, [c](const CharRange& range) { return range.first == c; });
      if (n_matched == 0 || is_known) continue;
      continuing.push_back({c, c});
      if (n_matched < n) alternatives.push_back(sequence({chars({{c, c}}), rule(rules[n_matched])}));
    }
    alternatives.push_back(sequence({chars(complement(std::move(continuing))), rule(rules.front())}));
    define(rules[i], choice(std::move(alternatives)));
  }
  return rule(rules.front());
}

GrammarBuilder::Rule GrammarBuilder::declare(std::string name) {
  size_ += 1 + name.size();
  if (is_too_large() && !rules_.empty()) return 0;
  rules_.push_back({.name = std::move(name)});
  return static_cast<Rule>(rules_.size()) - 1;
}

GrammarBuilder::Rule GrammarBuilder::embed(Grammar grammar) {
  const Rule rule = declare("embedded grammar");
  Named& named = rules_[static_cast<size_t>(rule)];
  named.is_defined = true;
  named.embedded = static_cast<int>(embedded_.size());
  embedded_.push_back(std::move(grammar));
  return rule;
}

void GrammarBuilder::add_unenforced(std::string text) {
  constexpr size_t kMaxTexts = 8;
  if (unenforced_.size() == kMaxTexts || std::ranges::find(unenforced_, text) != unenforced_.end()) return;
  unenforced_.push_back(std::move(text));
}

void GrammarBuilder::define(Rule rule, Expr expr) {
  Named& named = rules_[static_cast<size_t>(rule)];
  named.expr = expr;
  named.is_defined = true;
}

// Compiles expressions to sequences. The builder's rules come first and keep their ids.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& builder) : builder_(builder) {
    out_.rules.resize(builder.rules_.size());
  }

  Result<Grammar> write(GrammarBuilder::Rule root) {
    out_.root = root;
    is_too_large_ = builder_.is_too_large();
    for (size_t i = 0; i < builder_.rules_.size() && !is_too_large_; ++i) {
      const GrammarBuilder::Named& named = builder_.rules_[i];
      if (!named.is_defined)
        return fail(ErrorCode::invalid_input, "the grammar does not define the rule '{}'", named.name);
      if (named.embedded >= 0) {
        embed(builder_.embedded_[static_cast<size_t>(named.embedded)], static_cast<int32_t>(i));
      } else {
        add_alternatives(static_cast<int32_t>(i), named.expr);
      }
    }
    if (is_too_large_) {
      return fail(ErrorCode::invalid_input, "the grammar is too large: it has more than {} elements", kMaxElements);
    }
    if (const std::optional<int32_t> rule = find_left_recursion()) {
      const auto n_named = static_cast<int32_t>(builder_.rules_.size());
      const std::string name = *rule < n_named ? builder_.rules_[static_cast<size_t>(*rule)].name : "a group";
      return fail(ErrorCode::invalid_input,
                  "rule '{}' of the grammar is left-recursive; move the recursion to the end of the rule", name);
    }
    drop_nonproductive();
    if (out_.rules[static_cast<size_t>(root)].empty()) {
      return fail(ErrorCode::invalid_input, "the grammar matches no text: its rule '{}' never terminates",
                  builder_.rules_[static_cast<size_t>(root)].name);
    }
    return std::move(out_);
  }

 private:
  using Expr = GrammarBuilder::Expr;
  using Kind = GrammarBuilder::Kind;
  using Sequence = std::vector<Grammar::Element>;

  const GrammarBuilder::Node& node(Expr expr) const { return builder_.nodes_[static_cast<size_t>(expr)]; }

  int32_t new_rule() {
    out_.rules.emplace_back();
    return static_cast<int32_t>(out_.rules.size()) - 1;
  }

  void add_alternative(int32_t rule, const Sequence& sequence) {
    is_too_large_ = is_too_large_ || out_.elements.size() + sequence.size() >= kMaxElements;
    if (is_too_large_) return;
    out_.rules[static_cast<size_t>(rule)].push_back(static_cast<int32_t>(out_.elements.size()));
    out_.elements.insert(out_.elements.end(), sequence.begin(), sequence.end());
    out_.elements.push_back({Grammar::Kind::end, 0});
  }

  void add_alternatives(int32_t rule, Expr expr) {
    const GrammarBuilder::Node& top = node(expr);
    const std::span<const Expr> parts =
        top.kind == Kind::choice ? std::span<const Expr>(top.parts) : std::span(&expr, 1);
    for (const Expr part : parts) {
      Sequence sequence;
      append(part, sequence);
      add_alternative(rule, sequence);
    }
  }

  void push(Sequence& sequence, Grammar::Element element) {
    is_too_large_ = is_too_large_ || sequence.size() >= kMaxElements;
    if (!is_too_large_) sequence.push_back(element);
  }

  void append(Expr expr, Sequence& sequence) {
    if (is_too_large_) return;
    const GrammarBuilder::Node& at = node(expr);
    switch (at.kind) {
      case Kind::text:
        for (const char byte : at.text) push(sequence, bytes(ByteSet().set(static_cast<uint8_t>(byte))));
        return;
      case Kind::chars:
        return push(sequence, one_char(at.ranges));
      case Kind::sequence:
        for (const Expr part : at.parts) append(part, sequence);
        return;
      case Kind::choice: {
        const int32_t rule = new_rule();
        add_alternatives(rule, expr);
        return push(sequence, {Grammar::Kind::rule, rule});
      }
      case Kind::repeat:
        return append_repeated(at, sequence);
      case Kind::rule:
        return push(sequence, {Grammar::Kind::rule, at.rule});
    }
  }

  void append_repeated(const GrammarBuilder::Node& at, Sequence& sequence) {
    Sequence part;
    append(at.parts.front(), part);
    if (part.size() > 1) {  // one rule, shared by all repetitions
      const int32_t rule = new_rule();
      add_alternative(rule, part);
      part = {{Grammar::Kind::rule, rule}};
    }
    if (part.empty()) return;
    for (int i = 0; i < at.min && !is_too_large_; ++i) push(sequence, part.front());
    if (at.max == GrammarBuilder::kNoLimit) {
      const int32_t repeat = new_rule();
      add_alternative(repeat, {part.front(), {Grammar::Kind::rule, repeat}});
      add_alternative(repeat, {});
      return push(sequence, {Grammar::Kind::rule, repeat});
    }
    std::optional<int32_t> shorter;
    for (int i = at.min; i < at.max && !is_too_large_; ++i) {
      const int32_t rule = new_rule();
      add_alternative(rule, shorter ? Sequence{part.front(), {Grammar::Kind::rule, *shorter}} : part);
      add_alternative(rule, {});
      shorter = rule;
    }
    if (shorter) push(sequence, {Grammar::Kind::rule, *shorter});
  }

  // Copies the rules of another grammar; `rule` becomes its root.
  void embed(const Grammar& other, int32_t rule) {
    const auto first_rule = static_cast<int32_t>(out_.rules.size());
    out_.rules.resize(out_.rules.size() + other.rules.size());
    for (size_t r = 0; r < other.rules.size(); ++r) {
      for (const int32_t alternative : other.rules[r]) {
        Sequence sequence;
        for (const Grammar::Element* e = &other.elements[static_cast<size_t>(alternative)];
             e->kind != Grammar::Kind::end; ++e) {
          push(sequence, e->kind == Grammar::Kind::rule ? Grammar::Element{e->kind, first_rule + e->index}
                                                        : bytes(other.byte_sets[static_cast<size_t>(e->index)]));
        }
        add_alternative(first_rule + static_cast<int32_t>(r), sequence);
      }
    }
    add_alternative(rule, {{Grammar::Kind::rule, first_rule + other.root}});
  }

  Grammar::Element bytes(const ByteSet& set) {
    const auto [found, is_new] = byte_sets_.try_emplace(set, static_cast<int32_t>(out_.byte_sets.size()));
    if (is_new) out_.byte_sets.push_back(set);
    return {Grammar::Kind::bytes, found->second};
  }

  // One byte set for ASCII, else a rule whose alternatives are the UTF-8 lengths and leading bytes.
  Grammar::Element one_char(const CharRanges& ranges) {
    if (const auto found = chars_.find(ranges); found != chars_.end()) return found->second;
    ByteSet ascii;
    std::vector<ByteRanges> longer;
    for (const auto& [first, last] : ranges) {
      for (char32_t c = first; c <= std::min<char32_t>(last, 0x7F); ++c) ascii.set(c);
      if (last > 0x7F) split_utf8(std::max<char32_t>(first, 0x80), last, longer);
    }
    Grammar::Element element = bytes(ascii);
    if (!longer.empty()) {
      element = {Grammar::Kind::rule, new_rule()};
      if (ascii.any()) add_alternative(element.index, {bytes(ascii)});
      for (const ByteRanges& ranges_of : longer) {
        Sequence sequence;
        for (const auto& [first, last] : ranges_of) {
          ByteSet set;
          for (int byte = first; byte <= last; ++byte) set.set(static_cast<size_t>(byte));
          sequence.push_back(bytes(set));
        }
        add_alternative(element.index, sequence);
      }
    }
    return chars_[ranges] = element;
  }

  // Drops alternatives that derive no text, so that every allowed byte leads to a complete text.
  void drop_nonproductive();

  // A rule that derives itself as a proper prefix, if there is one: expanding it would not terminate. Rules that only
  // repeat an empty part are allowed.
  std::optional<int32_t> find_left_recursion() const;
  std::vector<bool> productive_rules() const { return derivable_rules(Terminals::allowed); }  // they derive some text
  std::vector<bool> nullable_rules() const {
    return derivable_rules(Terminals::forbidden);
  }  // they derive the empty text
  // Fixpoint for both: rules with an alternative made of such rules only, and of bytes if terminals are allowed.
  enum class Terminals : uint8_t { allowed, forbidden };
  std::vector<bool> derivable_rules(Terminals terminals) const;

  const GrammarBuilder& builder_;
  Grammar out_;
  std::unordered_map<ByteSet, int32_t> byte_sets_;
  std::map<CharRanges, Grammar::Element> chars_;
  bool is_too_large_ = false;
};

// n_pending: rules of the alternative that are not known to be derivable yet.
std::vector<bool> GrammarCompiler::derivable_rules(Terminals terminals) const {
  struct Alternative {
    int32_t rule;
    int n_pending = 0;
  };
  std::vector<Alternative> alternatives;
  std::vector<std::vector<size_t>> used_in(out_.rules.size());  // alternatives, once per occurrence
  std::vector<bool> is_derivable(out_.rules.size());
  std::vector<int32_t> found;
  const auto mark_if_derivable = [&](const Alternative& alternative) {
    if (alternative.n_pending > 0 || is_derivable[static_cast<size_t>(alternative.rule)]) return;
    is_derivable[static_cast<size_t>(alternative.rule)] = true;
    found.push_back(alternative.rule);
  };
  const auto is_derivable_element = [&](const Grammar::Element& e) {
    return e.kind == Grammar::Kind::rule || (terminals == Terminals::allowed && e.kind == Grammar::Kind::bytes &&
                                             out_.byte_sets[static_cast<size_t>(e.index)].any());
  };
  for (size_t rule = 0; rule < out_.rules.size(); ++rule) {
    for (const int32_t at : out_.rules[rule]) {
      const Grammar::Element *const begin = &out_.elements[static_cast<size_t>(at)], *end = begin;
      while (is_derivable_element(*end)) ++end;
      if (end->kind != Grammar::Kind::end) continue;
      alternatives.push_back({static_cast<int32_t>(rule)});
      for (const Grammar::Element* e = begin; e != end; ++e) {
        if (e->kind != Grammar::Kind::rule) continue;
        used_in[static_cast<size_t>(e->index)].push_back(alternatives.size() - 1);
        ++alternatives.back().n_pending;
      }
      mark_if_derivable(alternatives.back());
    }
  }
  while (!found.empty()) {
    const auto rule = static_cast<size_t>(found.back());
    found.pop_back();
    for (const size_t i : used_in[rule]) {
      --alternatives[i].n_pending;
      mark_if_derivable(alternatives[i]);
    }
  }
  return is_derivable;
}

void GrammarCompiler::drop_nonproductive() {
  const std::vector<bool> productive = productive_rules();
  const auto is_nonproductive = [&](int32_t alternative) {
    for (const Grammar::Element* e = &out_.elements[static_cast<size_t>(alternative)]; e->kind != Grammar::Kind::end;
         ++e) {
      const auto index = static_cast<size_t>(e->index);
      if (e->kind == Grammar::Kind::rule ? !productive[index] : out_.byte_sets[index].none()) return true;
    }
    return false;
  };
  for (std::vector<int32_t>& alternatives : out_.rules) std::erase_if(alternatives, is_nonproductive);
}

std::optional<int32_t> GrammarCompiler::find_left_recursion() const {
  const std::vector<bool> nullable = nullable_rules();
  struct Edge {
    int32_t to;
    bool is_last;  // in tail position
  };
  std::vector<std::vector<Edge>> leading(out_.rules.size());
  for (size_t rule = 0; rule < out_.rules.size(); ++rule) {
    for (const int32_t at : out_.rules[rule]) {
      for (const Grammar::Element* e = &out_.elements[static_cast<size_t>(at)]; e->kind == Grammar::Kind::rule; ++e) {
        leading[rule].push_back({e->index, e[1].kind == Grammar::Kind::end});
        if (!nullable[static_cast<size_t>(e->index)]) break;
      }
    }
  }
  // Tarjan's strongly connected components, without recursion.
  std::vector<int32_t> number(leading.size(), -1), low(leading.size()), component(leading.size(), -1), open;
  std::vector<std::pair<int32_t, size_t>> path;
  int32_t n_visited = 0, n_components = 0;
  const auto enter = [&](int32_t rule) {
    number[static_cast<size_t>(rule)] = low[static_cast<size_t>(rule)] = n_visited++;
    open.push_back(rule);
    path.emplace_back(rule, 0);
  };
  for (size_t start = 0; start < leading.size(); ++start) {
    if (number[start] >= 0) continue;
    enter(static_cast<int32_t>(start));
    while (!path.empty()) {
      const auto rule = static_cast<size_t>(path.back().first);
      if (path.back().second < leading[rule].size()) {
        const auto to = static_cast<size_t>(leading[rule][path.back().second++].to);
        if (number[to] < 0) {
          enter(static_cast<int32_t>(to));
        } else if (component[to] < 0) {
          low[rule] = std::min(low[rule], number[to]);
        }
        continue;
      }
      if (low[rule] == number[rule]) {
        while (component[rule] < 0) {
          component[static_cast<size_t>(open.back())] = n_components;
          open.pop_back();
        }
        ++n_components;
      }
      path.pop_back();
      if (!path.empty()) {
        const auto before = static_cast<size_t>(path.back().first);
        low[before] = std::min(low[before], low[rule]);
      }
    }
  }
  for (size_t rule = 0; rule < leading.size(); ++rule) {
    for (const Edge& edge : leading[rule]) {
      if (!edge.is_last && component[static_cast<size_t>(edge.to)] == component[rule])
        return static_cast<int32_t>(rule);
    }
  }
  return std::nullopt;
}

Result<Grammar> GrammarBuilder::finish(Rule root) {
  ZINC_TRY(grammar, GrammarCompiler(*this).write(root));
  grammar.unenforced = unenforced_;
  return std::move(grammar);
}

}  // namespace zinc
