// Pre-tokenizers: split a text into words before BPE merging. One rule per file in text/pretokenizer/, selected by the
// GGUF key tokenizer.ggml.pre. Each rule is a hand-written scanner for a regular expression (or several, each applied
// to the pieces of the previous one); there is no regex engine. Rules are immutable and run in linear time.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zinc {

// Receives the words of a text in order. Words are not empty; their concatenation is the text.
class WordSink {
 public:
  virtual void word(std::string_view word) = 0;

 protected:
  ~WordSink() = default;
};

// A value of tokenizer.ggml.pre, with the tokenizer options it implies.
struct PretokenizerName {
  std::string_view name;
  bool ignore_merges = false;  // a word that is a token is not merged, as in HF tokenizers
  bool add_bos = false;        // default for tokenizer.ggml.add_bos_token
};

struct Pretokenizer {
  std::span<const PretokenizerName> names;
  // `text` should be UTF-8; invalid bytes are safe.
  void (*split)(std::string_view text, WordSink& sink);
};

extern const Pretokenizer* const kPretokenizers[];  // every rule, ended by nullptr

struct FoundPretokenizer {
  const Pretokenizer* rule;
  const PretokenizerName* name;
};

// The rule for a value of tokenizer.ggml.pre; nullptrs if unknown.
FoundPretokenizer find_pretokenizer(std::string_view name);
std::string pretokenizer_names();  // all known values, sorted, for messages

}  // namespace zinc
