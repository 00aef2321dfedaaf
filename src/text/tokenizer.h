// Text to tokens and back, from the vocabulary in a GGUF file: byte-level BPE (gpt2), SentencePiece with scores (llama)
// and SentencePiece with merges (gemma4). Immutable after load, cheap to copy; encode() is thread-safe and takes time
// linear in the text (n log n in one long word). Any bytes can be encoded; nothing here fails on text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "gguf/gguf_file.h"

namespace zinc {

struct SpecialTokens {
  bool add_special = false;    // begin of text (and end, for the few files that ask for it) around the tokens
  bool parse_special = false;  // text like <|im_start|> becomes its control token
};

// A piece of a prompt. Where parse_special is false, as it must be for what a user wrote, no control token comes out,
// not even one that begins in a piece that may have them.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  static Result<Tokenizer> load(const GgufFile& file);

  // Appends the tokens of `text` to `out`, as llama.cpp does: without parse_special, tokens of type user-defined are
  // still found, and so are gpt-oss's <|start|>, <|channel|>, <|message|>, <|constrain|> and <|end|>.
  void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& out) const;
  // The segments as one text: where they meet is no boundary. With add_special, begin of text is added unless the
  // segments already begin with it.
  void encode(std::span<const TextSegment> segments, bool add_special, std::vector<TokenId>& out) const;
  // The bytes of all tokens, one after the other, without the space that encode() put before the text. Control tokens
  // are left out.
  std::string decode(std::span<const TokenId> ids) const;

  int32_t n_vocab() const;
  // What a token says, perhaps only a part of a character; for a control token its text. Empty for ids out of range.
  std::string_view bytes(TokenId id) const;
  bool is_control(TokenId id) const;            // found only with parse_special, not meant to be shown
  bool is_end(TokenId id) const;                // a generation ends here
  std::span<const TokenId> end_tokens() const;  // sorted
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;  // encode() with add_special begins with bos()
  bool adds_eos() const;
  // The token with this text: a special token by its name in the file, else the token that spells these bytes.
  std::optional<TokenId> find(std::string_view text) const;

 private:
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

}  // namespace zinc
