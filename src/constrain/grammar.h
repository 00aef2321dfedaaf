// A context-free grammar, built from expressions and stored as sequences of byte sets and rules. Expressions are over
// Unicode characters; the grammar is over their UTF-8 bytes, because tokens may end inside a character.
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
  std::vector<Element> elements;  // sequences, each terminated by Kind::end
  std::vector<ByteSet> byte_sets;
  std::vector<std::vector<int32_t>> rules;  // per rule: the first element of each alternative
  int32_t root = 0;
  std::vector<std::string> unenforced = {};  // parts of its source that the grammar does not enforce, for the user
};

struct CharRange {
  char32_t first, last;  // inclusive
  friend bool operator==(const CharRange&, const CharRange&) = default;
  friend auto operator<=>(const CharRange&, const CharRange&) = default;
};
using CharRanges = std::vector<CharRange>;  // in any order
CharRanges complement(CharRanges ranges);   // over the Unicode scalar values; sorted

class GrammarBuilder {
 public:
  static constexpr int kNoLimit = -1;
  using Expr = int32_t;
  using Rule = int32_t;

  Expr text(std::string_view bytes);
  Expr chars(CharRanges ranges);  // one character, never a surrogate
  Expr sequence(std::vector<Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr repeat(Expr part, int min, int max);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr any_text() { return repeat(chars(complement({})), 0, kNoLimit); }
  Expr text_without(std::string_view marker);  // any text that does not contain the marker. REQUIRES: valid UTF-8
  Expr rule(Rule rule);

  Rule declare(std::string name);  // the name is for error messages
  Rule embed(Grammar grammar);     // a rule for the texts of a complete grammar
  // The size limit is exceeded: further expressions are dropped, and finish() fails.
  bool is_too_large() const { return size_ > kMaxSize; }
  void define(Rule rule, Expr expr);
  // Records a part of the source that the grammar does not enforce. The first few are kept, each once.
  void add_unenforced(std::string text);
  const std::vector<std::string>& unenforced() const { return unenforced_; }
  bool is_defined(Rule rule) const { return rules_[static_cast<size_t>(rule)].is_defined; }

  // Fails if a rule is undefined or left-recursive, if the grammar matches no text, or if it is too large. In the
  // result every allowed byte leads to a complete text.
  Result<Grammar> finish(Rule root);

 private:
  static constexpr size_t kMaxSize = 1 << 19;
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
    int embedded = -1;  // >= 0: instead of `expr`
  };
  Expr add(Node node);

  friend class GrammarCompiler;
  std::vector<Node> nodes_;
  size_t size_ = 0;  // nodes and their contents
  std::vector<Named> rules_;
  std::vector<Grammar> embedded_;
  std::vector<std::string> unenforced_;
};

}  // namespace zinc
