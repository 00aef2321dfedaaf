// The tokens of a vocabulary: what bytes each stands for, and which token spells given bytes. Built by
// tokenizer_load.cc, constant afterwards. Merge rules may speak of pieces that are no token; they are interned here as
// symbols with ids from n_tokens() up, so that merging needs nothing but ids.
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

// Numbers as in tokenizer.ggml.token_type; open_control is ours.
enum class TokenType : uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,  // found in every text before anything else
  unused = 5,
  byte = 6,  // <0x0A>: a byte no other token covers
  // Control by the file, but found in plain text and shown in output all the same: gpt-oss's channel marks.
  open_control = 7,
};

inline bool is_special(TokenType type) {
  return type == TokenType::unknown || type == TokenType::control || type == TokenType::user_defined ||
         type == TokenType::open_control;
}

// How the file writes the bytes of a token.
enum class Spelling : uint8_t {
  byte_level,  // GPT-2: each byte as one printable character
  spaced,      // SentencePiece: UTF-8, with U+2581 for a space
};

uint64_t hash_bytes(std::string_view bytes);
int byte_of_text(std::string_view text);  // 10 for "<0x0A>"; -1 for any other text

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  static Result<Vocabulary> build(Spelling spelling, const std::vector<std::string_view>& texts,
                                  const std::vector<TokenType>& types);

  int32_t n_tokens() const { return n_tokens_; }
  bool is_token(int32_t symbol) const { return symbol >= 0 && symbol < n_tokens_; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  size_t max_bytes() const { return max_bytes_; }  // of one symbol

  std::string_view bytes(int32_t symbol) const {  // REQUIRES: 0 <= symbol < n_symbols
    const size_t begin = begins_[static_cast<size_t>(symbol)];
    return std::string_view(arena_).substr(begin, begins_[static_cast<size_t>(symbol) + 1] - begin);
  }
  // The symbol that plain text of these bytes may become; kNone if there is none. Control, unknown, unused and byte
  // tokens are never found.
  int32_t find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
  int32_t find(std::string_view bytes, uint64_t hash) const;
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // kNone: the vocabulary has none

  // Only while loading: the symbol of `bytes`, made if missing. kNone: over 4 GiB of text.
  int32_t intern(std::string_view bytes, uint64_t hash);

 private:
  // Short texts are compared without leaving the slot.
  struct Slot {
    uint64_t head = 0;  // the first eight bytes
    uint32_t tag = 0;   // of the hash, with the length in the low byte
    int32_t symbol = kNone;
  };
  static Slot slot_of(std::string_view bytes, uint64_t hash);  // without symbol
  bool is_at(const Slot& slot, const Slot& wanted, std::string_view bytes) const;
  bool append(std::string_view bytes);  // as bytes of the next symbol; false: over 4 GiB of text
  void index(const std::vector<TokenId>& ids);
  void insert(int32_t symbol, uint64_t hash);  // the first of equal symbols is found
  void grow();

  int32_t n_tokens_ = 0;
  std::string arena_;
  std::vector<uint32_t> begins_ = {0};  // of symbol i in arena_; one more than symbols
  std::vector<TokenType> types_;
  std::vector<Slot> slots_;
  size_t n_indexed_ = 0;
  size_t max_bytes_ = 0;
  std::array<TokenId, 256> byte_tokens_;
};

// Turns a file's spelling into bytes, appended to `out`. False if some character is not of the alphabet (it is taken as
// it is): such a token cannot come out of plain text.
bool unspell(Spelling spelling, std::string_view text, std::string& out);

}  // namespace zinc
