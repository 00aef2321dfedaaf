// Tokens to text while they are generated. One per request, used by one thread. What comes out is always valid UTF-8
// (broken bytes become U+FFFD as in base/utf8.h), never half a character, never a part of what may become a stop
// string; all pieces together do not depend on how the bytes were cut into tokens. Linear in the text, however many
// stop strings.
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

// Finds the first place where one of several strings ends, byte by byte (Aho-Corasick).
class StopFinder {
 public:
  explicit StopFinder(const std::vector<std::string>& stops);  // empty strings never match

  // Takes the next byte. Returns the stop string that ends with it, the longest if there are several.
  std::optional<size_t> push(char byte);
  size_t n_held() const {
    return states_[static_cast<size_t>(state_)].depth;
  }  // last bytes that may begin a stop string

 private:
  static constexpr int32_t kNoStop = -1;
  struct State {
    int32_t fail = ByteTrie::kRoot;  // of the longest proper suffix that begins a stop string
    int32_t stop = kNoStop;          // that ends here
    uint32_t depth = 0;
  };
  void link();

  ByteTrie trie_;
  std::vector<State> states_;  // by node of trie_
  int32_t state_ = ByteTrie::kRoot;
};

// Bytes in, text out: the part of StreamDecoder that knows no tokens.
class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops = {});

  // Text that is final now; valid until the next call. After a stop string it is empty for ever.
  std::string_view push(std::string_view bytes);
  std::string_view finish();  // the rest, at the end of the generation

  bool stopped() const { return stop_.has_value(); }
  const std::string* stop_string() const { return stop_ ? &stops_[*stop_] : nullptr; }  // what stopped it

 private:
  void take_characters(size_t n_kept);
  std::string_view stop_or_release(bool may_go_on);
  std::string_view release(size_t end);

  std::vector<std::string> stops_;
  StopFinder finder_;
  std::optional<size_t> stop_;
  std::string raw_;   // begin of a character
  std::string text_;  // valid UTF-8; [0, n_released_) has been handed out
  size_t n_released_ = 0;
  size_t n_searched_ = 0;
};

class StreamDecoder {
 public:
  struct Options {
    std::vector<std::string> stop;
    bool show_control = false;  // control tokens say their text; otherwise nothing
  };
  StreamDecoder(Tokenizer tokenizer, Options options);

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
