// The set of character pairs that occur inside some symbol. Between two characters of any other pair no merge can
// happen, so the text is split there into parts that merge independently and can be cached; for tokenizers without a
// pre-tokenizer. A Bloom filter: a false positive only leaves two parts joined.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer_normalizer.h"

namespace zinc {

class CharPairFilter {
 public:
  CharPairFilter() : bits_(kBits / 64) {}

  void add(std::string_view left, std::string_view right) {  // two characters, as bytes
    const size_t bit = bit_of(code_of(left), code_of(right));
    bits_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  void add_neighbors(std::string_view text) {  // all adjacent pairs of `text`
    for (size_t at = 0, n = 0; at < text.size(); at += n) {
      const std::string_view character = char_at_front(text.substr(at));
      n = character.size();
      if (at + n < text.size()) add(character, char_at_front(text.substr(at + n)));
    }
  }

  // The length of the first part of `text`: up to the first pair that cannot merge.
  size_t part_bytes(std::string_view text) const {
    std::string_view character = char_at_front(text);
    size_t at = character.size();
    uint32_t left = code_of(character);
    while (at < text.size()) {
      character = char_at_front(text.substr(at));
      const uint32_t right = code_of(character);
      const size_t bit = bit_of(left, right);
      if ((bits_[bit / 64] >> (bit % 64) & 1) == 0) break;
      left = right;
      at += character.size();
    }
    return at;
  }

  static std::string_view char_at_front(std::string_view text) { return text.substr(0, utf8_length(text[0])); }

 private:
  static constexpr int kBitsLog2 = 21;  // 256 kB; the pairs of 262k tokens fill a tenth of it
  static constexpr size_t kBits = size_t{1} << kBitsLog2;

  static uint32_t code_of(std::string_view character) {
    uint32_t code = 0;
    for (const char byte : character) code = code << 8 | static_cast<uint8_t>(byte);
    return code;
  }
  // ASCII pairs have their own bits, close together.
  static size_t bit_of(uint32_t left, uint32_t right) {
    if ((left | right) < 0x80) return left << 7 | right;
    const uint64_t mixed = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
    return (mixed ^ (mixed >> 29)) * 0xD6E8FEB86659FD93u >> (64 - kBitsLog2);
  }

  std::vector<uint64_t> bits_;
};

}  // namespace zinc
