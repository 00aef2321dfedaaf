// How a text is cut into words before byte-pair merging: one rule per file in text/pretokenizer/, found by the GGUF key
// tokenizer.ggml.pre. Each rule is a hand-written scanner of a regular expression (or of several, applied one after the
// other to the pieces of the one before); there is no regex engine. Rules are constant and run in linear time.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zinc {

// Takes the words of a text in order. Words are never empty and together are the whole text.
class WordSink {
 public:
  virtual void word(std::string_view word) = 0;

 protected:
  ~WordSink() = default;
};

// A value of tokenizer.ggml.pre, and what it means beside the rule.
struct PretokenizerName {
  std::string_view name;
  bool whole_words = false;  // a word that is a token stays whole, without looking at the merges
  bool add_bos = false;      // when the file has no tokenizer.ggml.add_bos_token
};

struct Pretokenizer {
  std::span<const PretokenizerName> names;
  // `text` should be UTF-8; any bytes are safe.
  void (*split)(std::string_view text, WordSink& sink);
};

extern const Pretokenizer* const kPretokenizers[];  // every rule, ended by nullptr

struct FoundPretokenizer {
  const Pretokenizer* rule;
  const PretokenizerName* name;
};

// The rule for a value of tokenizer.ggml.pre; nullptrs if there is none.
FoundPretokenizer find_pretokenizer(std::string_view name);
std::string pretokenizer_names();  // all known values, sorted, for messages

}  // namespace zinc
