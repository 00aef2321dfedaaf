// What a text may be: a context-free grammar, built from expressions and kept as sequences of bytes and rules.
// Characters are Unicode's; the grammar itself is over the bytes of their UTF-8, since tokens end anywhere.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace zinc {

using ByteSet = std::bitset<256>;

struct Grammar {
  enum class Kind : uint8_t { bytes, rule, end };
  struct Element {
    Kind kind;
    int32_t index;  // of `byte_sets` or `rules`
  };
  std::vector<Element> elements;  // sequences, each with an end
  std::vector<ByteSet> byte_sets;
  std::vector<std::vector<int32_t>> rules;  // of each: where its alternatives begin among the elements
  int32_t root = 0;
};

struct CharRange {
  char32_t first, last;  // both belong to it
  friend bool operator==(const CharRange&, const CharRange&) = default;
  friend auto operator<=>(const CharRange&, const CharRange&) = default;
};
using CharRanges = std::vector<CharRange>;  // in any order
CharRanges all_but(CharRanges ranges);      // of Unicode's scalar values; sorted

class GrammarBuilder {
 public:
  static constexpr int kNoLimit = -1;
  using Expr = int32_t;
  using Rule = int32_t;

  Expr text(std::string_view bytes);
  Expr chars(CharRanges ranges);  // one character; surrogates never are
  Expr sequence(std::vector<Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr repeat(Expr part, int min, int max);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr rule(Rule rule);

  Rule declare(std::string name);  // for messages
  // It has become larger than any grammar may be: what is added from now on is not kept, and finish() fails.
  bool is_too_large() const { return size_ > kMostSize; }
  void define(Rule rule, Expr expr);
  bool is_defined(Rule rule) const { return rules_[static_cast<size_t>(rule)].is_defined; }

  // Fails where a rule has no definition, where one begins with itself, where no text is of the grammar, and where it
  // is too large. What may come next by the grammar always leads to an end.
  Result<Grammar> finish(Rule root);

 private:
  static constexpr size_t kMostSize = 1 << 19;
  enum class Kind : uint8_t { text, chars, sequence, choice, repeat, rule };
  struct Node {
    Kind kind;
    std::string text = {};
    CharRanges ranges = {};
    std::vector<Expr> parts = {};
    int min = 0, max = 0;
    Rule rule = 0;
  };
  struct Named {
    std::string name;
    bool is_defined = false;
    Expr expr = 0;
  };
  Expr add(Node node);

  friend class GrammarWriter;
  std::vector<Node> nodes_;
  size_t size_ = 0;  // nodes and what they hold
  std::vector<Named> rules_;
};

}  // namespace zinc
