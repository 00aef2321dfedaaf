#include "constrain/grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr size_t kMostElements = 1 << 18;
constexpr char32_t kLastChar = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

CharRanges merged(CharRanges ranges) {
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

using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;  // one for each byte of a character

ByteRanges bytes_between(char32_t first, char32_t last) {
  std::string a, b;
  append_utf8(a, first);
  append_utf8(b, last);
  ByteRanges out;
  for (size_t i = 0; i < a.size(); ++i) out.emplace_back(static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i]));
  return out;
}

// The characters of a range as products of byte ranges: it is cut until the bytes behind the first that differs go
// through all their values.
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

CharRanges all_but(CharRanges ranges) {
  CharRanges out;
  char32_t next = 0;
  for (const auto& [first, last] : merged(std::move(ranges))) {
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
  return add({.kind = Kind::chars, .ranges = without_surrogates(merged(std::move(ranges)))});
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

GrammarBuilder::Rule GrammarBuilder::declare(std::string name) {
  size_ += 1 + name.size();
  if (is_too_large() && !rules_.empty()) return 0;
  rules_.push_back({.name = std::move(name)});
  return static_cast<Rule>(rules_.size()) - 1;
}

void GrammarBuilder::define(Rule rule, Expr expr) {
  Named& named = rules_[static_cast<size_t>(rule)];
  named.expr = expr;
  named.is_defined = true;
}

// From expressions to sequences. The builder's rules come first and keep their numbers.
class GrammarWriter {
 public:
  explicit GrammarWriter(const GrammarBuilder& from) : from_(from) { out_.rules.resize(from.rules_.size()); }

  Result<Grammar> write(GrammarBuilder::Rule root) {
    out_.root = root;
    is_too_large_ = from_.is_too_large();
    for (size_t i = 0; i < from_.rules_.size() && !is_too_large_; ++i) {
      const GrammarBuilder::Named& named = from_.rules_[i];
      if (!named.is_defined) return fail(ErrorCode::invalid_input, "the grammar has no rule '{}'", named.name);
      add_alternatives(static_cast<int32_t>(i), named.expr);
    }
    if (is_too_large_) {
      return fail(ErrorCode::invalid_input, "the grammar is too large: it has over {} elements", kMostElements);
    }
    if (const std::optional<int32_t> rule = begins_with_itself()) {
      const auto n_named = static_cast<int32_t>(from_.rules_.size());
      const std::string name = *rule < n_named ? from_.rules_[static_cast<size_t>(*rule)].name : "a part in brackets";
      return fail(ErrorCode::invalid_input,
                  "the rule '{}' of the grammar begins with itself: put the repeated part last", name);
    }
    drop_what_never_ends();
    if (out_.rules[static_cast<size_t>(root)].empty()) {
      return fail(ErrorCode::invalid_input, "no text is of the grammar: its rule '{}' never comes to an end",
                  from_.rules_[static_cast<size_t>(root)].name);
    }
    return std::move(out_);
  }

 private:
  using Expr = GrammarBuilder::Expr;
  using Kind = GrammarBuilder::Kind;
  using Sequence = std::vector<Grammar::Element>;

  const GrammarBuilder::Node& node(Expr expr) const { return from_.nodes_[static_cast<size_t>(expr)]; }

  int32_t new_rule() {
    out_.rules.emplace_back();
    return static_cast<int32_t>(out_.rules.size()) - 1;
  }

  void add_alternative(int32_t rule, const Sequence& sequence) {
    is_too_large_ = is_too_large_ || out_.elements.size() + sequence.size() >= kMostElements;
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
    is_too_large_ = is_too_large_ || sequence.size() >= kMostElements;
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
    if (part.size() > 1) {  // said once, however often it comes
      const int32_t rule = new_rule();
      add_alternative(rule, part);
      part = {{Grammar::Kind::rule, rule}};
    }
    if (part.empty()) return;
    for (int i = 0; i < at.min && !is_too_large_; ++i) push(sequence, part.front());
    if (at.max == GrammarBuilder::kNoLimit) {
      const int32_t again = new_rule();
      add_alternative(again, {part.front(), {Grammar::Kind::rule, again}});
      add_alternative(again, {});
      return push(sequence, {Grammar::Kind::rule, again});
    }
    std::optional<int32_t> fewer;
    for (int i = at.min; i < at.max && !is_too_large_; ++i) {
      const int32_t rule = new_rule();
      add_alternative(rule, fewer ? Sequence{part.front(), {Grammar::Kind::rule, *fewer}} : part);
      add_alternative(rule, {});
      fewer = rule;
    }
    if (fewer) push(sequence, {Grammar::Kind::rule, *fewer});
  }

  Grammar::Element bytes(const ByteSet& set) {
    const auto [found, is_new] = byte_sets_.try_emplace(set, static_cast<int32_t>(out_.byte_sets.size()));
    if (is_new) out_.byte_sets.push_back(set);
    return {Grammar::Kind::bytes, found->second};
  }

  // A byte where that is enough, else a rule: its alternatives are the lengths and beginnings of UTF-8.
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

  // Alternatives that no text is of, so that whatever may come next leads to an end.
  void drop_what_never_ends();

  // A rule whose beginning leads back to it with more to come: reading it would never end. Rules that only repeat an
  // empty part are none of these.
  std::optional<int32_t> begins_with_itself() const;
  // Rules with an alternative of nothing but such rules, and of bytes where these count.
  enum class Bytes : uint8_t { count, do_not_count };
  std::vector<bool> rules_made_of(Bytes bytes) const;

  const GrammarBuilder& from_;
  Grammar out_;
  std::unordered_map<ByteSet, int32_t> byte_sets_;
  std::map<CharRanges, Grammar::Element> chars_;
  bool is_too_large_ = false;
};

// Each alternative counts down how many of its rules are not known to be such yet.
std::vector<bool> GrammarWriter::rules_made_of(Bytes bytes) const {
  struct Alternative {
    int32_t rule;
    int n_left = 0;
  };
  std::vector<Alternative> alternatives;
  std::vector<std::vector<size_t>> used_in(out_.rules.size());  // alternatives, once for each time
  std::vector<bool> is_such(out_.rules.size());
  std::vector<int32_t> found;
  const auto settle = [&](const Alternative& alternative) {
    if (alternative.n_left > 0 || is_such[static_cast<size_t>(alternative.rule)]) return;
    is_such[static_cast<size_t>(alternative.rule)] = true;
    found.push_back(alternative.rule);
  };
  const auto may_stand = [&](const Grammar::Element& e) {
    return e.kind == Grammar::Kind::rule || (bytes == Bytes::count && e.kind == Grammar::Kind::bytes &&
                                             out_.byte_sets[static_cast<size_t>(e.index)].any());
  };
  for (size_t rule = 0; rule < out_.rules.size(); ++rule) {
    for (const int32_t at : out_.rules[rule]) {
      const Grammar::Element *const begin = &out_.elements[static_cast<size_t>(at)], *end = begin;
      while (may_stand(*end)) ++end;
      if (end->kind != Grammar::Kind::end) continue;
      alternatives.push_back({static_cast<int32_t>(rule)});
      for (const Grammar::Element* e = begin; e != end; ++e) {
        if (e->kind != Grammar::Kind::rule) continue;
        used_in[static_cast<size_t>(e->index)].push_back(alternatives.size() - 1);
        ++alternatives.back().n_left;
      }
      settle(alternatives.back());
    }
  }
  while (!found.empty()) {
    const auto rule = static_cast<size_t>(found.back());
    found.pop_back();
    for (const size_t i : used_in[rule]) {
      --alternatives[i].n_left;
      settle(alternatives[i]);
    }
  }
  return is_such;
}

void GrammarWriter::drop_what_never_ends() {
  const std::vector<bool> ends = rules_made_of(Bytes::count);
  const auto never_ends = [&](int32_t alternative) {
    for (const Grammar::Element* e = &out_.elements[static_cast<size_t>(alternative)]; e->kind != Grammar::Kind::end;
         ++e) {
      const auto index = static_cast<size_t>(e->index);
      if (e->kind == Grammar::Kind::rule ? !ends[index] : out_.byte_sets[index].none()) return true;
    }
    return false;
  };
  for (std::vector<int32_t>& alternatives : out_.rules) std::erase_if(alternatives, never_ends);
}

std::optional<int32_t> GrammarWriter::begins_with_itself() const {
  const std::vector<bool> is_empty = rules_made_of(Bytes::do_not_count);
  struct Edge {
    int32_t to;
    bool is_last;  // nothing follows
  };
  std::vector<std::vector<Edge>> begins(out_.rules.size());
  for (size_t rule = 0; rule < out_.rules.size(); ++rule) {
    for (const int32_t at : out_.rules[rule]) {
      for (const Grammar::Element* e = &out_.elements[static_cast<size_t>(at)]; e->kind == Grammar::Kind::rule; ++e) {
        begins[rule].push_back({e->index, e[1].kind == Grammar::Kind::end});
        if (!is_empty[static_cast<size_t>(e->index)]) break;
      }
    }
  }
  // Tarjan's components, without recursion: rules that lead to each other.
  std::vector<int32_t> number(begins.size(), -1), low(begins.size()), component(begins.size(), -1), open;
  std::vector<std::pair<int32_t, size_t>> path;
  int32_t n_seen = 0, n_components = 0;
  const auto enter = [&](int32_t rule) {
    number[static_cast<size_t>(rule)] = low[static_cast<size_t>(rule)] = n_seen++;
    open.push_back(rule);
    path.emplace_back(rule, 0);
  };
  for (size_t start = 0; start < begins.size(); ++start) {
    if (number[start] >= 0) continue;
    enter(static_cast<int32_t>(start));
    while (!path.empty()) {
      const auto rule = static_cast<size_t>(path.back().first);
      if (path.back().second < begins[rule].size()) {
        const auto to = static_cast<size_t>(begins[rule][path.back().second++].to);
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
  for (size_t rule = 0; rule < begins.size(); ++rule) {
    for (const Edge& edge : begins[rule]) {
      if (!edge.is_last && component[static_cast<size_t>(edge.to)] == component[rule])
        return static_cast<int32_t>(rule);
    }
  }
  return std::nullopt;
}

Result<Grammar> GrammarBuilder::finish(Rule root) { return GrammarWriter(*this).write(root); }

}  // namespace zinc
