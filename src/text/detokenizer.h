// Incremental detokenization with stop strings. One per request, one thread. The output is always valid UTF-8 (invalid
// bytes become U+FFFD as in base/utf8.h); incomplete characters and possible prefixes of a stop string are held back.
// The concatenated output does not depend on the token boundaries. Linear time, however many stop strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/byte_trie.h"
#include "text/tokenizer.h"

namespace zinc {

// Aho-Corasick matcher for stop strings, byte by byte.
class StopStringMatcher {
 public:
  explicit StopStringMatcher(const std::vector<std::string>& stops);  // empty strings never match

  // Returns the index of the stop string that ends with `byte`, the longest one if there are several.
  std::optional<size_t> push(char byte);
  size_t n_held() const {
    return states_[static_cast<size_t>(state_)].depth;
  }  // trailing bytes that may start a stop string

 private:
  static constexpr int32_t kNoStop = -1;
  struct State {
    int32_t fail = ByteTrie::kRoot;  // failure link: longest proper suffix that starts a stop string
    int32_t stop = kNoStop;          // stop string that ends here
    uint32_t depth = 0;
  };
  void link();

  ByteTrie trie_;
  std::vector<State> states_;  // by node of trie_
  int32_t state_ = ByteTrie::kRoot;
};

// Bytes in, text out: UTF-8 and stop strings, without tokens.
class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops = {});

  // The text that is final now; valid until the next call. Always empty after a stop string.
  std::string_view push(std::string_view bytes);
  std::string_view finish();  // the rest, at the end of generation

  bool stopped() const { return stop_.has_value(); }
  const std::string* stop_string() const { return stop_ ? &stops_[*stop_] : nullptr; }  // nullptr: not stopped

 private:
  void take_characters(size_t n_kept);
  std::string_view stop_or_release(bool is_last);
  std::string_view release(size_t end);

  std::vector<std::string> stops_;
  StopStringMatcher matcher_;
  std::optional<size_t> stop_;
  std::string raw_;   // incomplete character
  std::string text_;  // valid UTF-8; [0, n_released_) has been handed out
  size_t n_released_ = 0;
  size_t n_searched_ = 0;
};

class Detokenizer {
 public:
  struct Options {
    std::vector<std::string> stop;
    bool show_control = false;  // show the text of control tokens
  };
  Detokenizer(Tokenizer tokenizer, Options options);

  std::string_view push(TokenId id);  // as TextStream::push
  std::string_view finish() { return stream_.finish(); }
  bool stopped() const { return stream_.stopped(); }
  const std::string* stop_string() const { return stream_.stop_string(); }

 private:
  Tokenizer tokenizer_;
  bool show_control_;
  TextStream stream_;
};

}  // namespace zinc
