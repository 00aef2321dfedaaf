// The vocabulary: bytes of each token, and lookup of a token by bytes. Built by tokenizer.cc, immutable afterwards.
// Merges may name pieces that are not tokens; these are interned as symbols with ids from n_tokens() up, so that
// merging works on ids only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace zinc {

// Numbers as in tokenizer.ggml.token_type; visible_control is an addition.
enum class TokenType : uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,  // added token, matched in every text
  unused = 5,
  byte = 6,  // byte fallback, <0x0A>
  // Control in the file, but parsed in plain text and shown in output: gpt-oss's channel markers.
  visible_control = 7,
};

inline bool is_special(TokenType type) {
  return type == TokenType::unknown || type == TokenType::control || type == TokenType::user_defined ||
         type == TokenType::visible_control;
}

// How the file encodes the bytes of a token as text.
enum class TokenTextFormat : uint8_t {
  byte_level,  // GPT-2: each byte as one printable character
  metaspace,   // SentencePiece: UTF-8, with U+2581 for a space
};

uint64_t hash_bytes(std::string_view bytes);
int parse_byte_token(std::string_view text);  // 10 for "<0x0A>"; -1 for any other text

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  static Result<Vocabulary> build(TokenTextFormat text_format, const std::vector<std::string_view>& texts,
                                  const std::vector<TokenType>& types);

  int32_t n_tokens() const { return n_tokens_; }
  bool is_token(int32_t symbol) const { return symbol >= 0 && symbol < n_tokens_; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  size_t max_bytes() const { return max_bytes_; }  // longest symbol

  std::string_view bytes(int32_t symbol) const {  // REQUIRES: 0 <= symbol < n_symbols
    const size_t begin = begins_[static_cast<size_t>(symbol)];
    return std::string_view(arena_).substr(begin, begins_[static_cast<size_t>(symbol) + 1] - begin);
  }
  // The symbol with these bytes; kNone if there is none. Never returns control, unknown, unused or byte tokens.
  int32_t find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
  int32_t find(std::string_view bytes, uint64_t hash) const;
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // kNone: not in the vocabulary

  // Only while loading: the symbol of `bytes`, added if missing. kNone: over 4 GiB of text.
  int32_t intern(std::string_view bytes, uint64_t hash);

 private:
  // Short texts are compared within the slot.
  struct Slot {
    uint64_t head = 0;  // the first eight bytes
    uint32_t tag = 0;   // hash bits, with the length in the low byte
    int32_t symbol = kNone;
  };
  static Slot slot_of(std::string_view bytes, uint64_t hash);  // without symbol
  bool is_at(const Slot& slot, const Slot& wanted, std::string_view bytes) const;
  bool append(std::string_view bytes);  // as bytes of the next symbol; false: over 4 GiB of text
  void index(const std::vector<TokenId>& ids);
  void insert(int32_t symbol, uint64_t hash);  // keeps the first of equal symbols
  void grow();

  int32_t n_tokens_ = 0;
  std::string arena_;
  std::vector<uint32_t> begins_ = {0};  // offset of symbol i in arena_; size: n_symbols + 1
  std::vector<TokenType> types_;
  std::vector<Slot> slots_;
  size_t n_indexed_ = 0;
  size_t max_bytes_ = 0;
  std::array<TokenId, 256> byte_tokens_;
};

// Decodes token text to bytes, appended to `out`. False if some character is outside the alphabet (it is copied
// unchanged): plain text cannot produce such a token.
bool decode_token_text(TokenTextFormat text_format, std::string_view text, std::string& out);

}  // namespace zinc
