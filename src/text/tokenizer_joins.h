// Which characters can stand side by side inside one symbol. Where two cannot, a text falls into parts that merge
// independently of each other, so a tokenizer without pre-tokenizer need not merge a whole text at once, and short
// parts can be cached. A set of bits with collisions: a collision only leaves two parts together.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer_text.h"

namespace zinc {

class CharJoins {
 public:
  CharJoins() : bits_(kBits / 64) {}

  void add(std::string_view left, std::string_view right) {  // two characters, as bytes
    const size_t bit = bit_of(code_of(left), code_of(right));
    bits_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  void add_all(std::string_view text) {  // all neighbours within `text`
    for (size_t at = 0, n = 0; at < text.size(); at += n) {
      const std::string_view character = char_at_front(text.substr(at));
      n = character.size();
      if (at + n < text.size()) add(character, char_at_front(text.substr(at + n)));
    }
  }

  // The length of the part at the front of `text`: up to the first two characters that cannot join.
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
  static constexpr int kBitsLog2 = 21;  // 256 kB; the neighbours of 262k tokens fill a tenth of it
  static constexpr size_t kBits = size_t{1} << kBitsLog2;

  static uint32_t code_of(std::string_view character) {
    uint32_t code = 0;
    for (const char byte : character) code = code << 8 | static_cast<uint8_t>(byte);
    return code;
  }
  // Two ASCII characters have a bit of their own, close to each other.
  static size_t bit_of(uint32_t left, uint32_t right) {
    if ((left | right) < 0x80) return left << 7 | right;
    const uint64_t mixed = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
    return (mixed ^ (mixed >> 29)) * 0xD6E8FEB86659FD93u >> (64 - kBitsLog2);
  }

  std::vector<uint64_t> bits_;
};

}  // namespace zinc
