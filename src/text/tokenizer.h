// The tokenizer of a GGUF file: byte-level BPE (gpt2), SentencePiece with scores (llama) or with merges (gemma4).
// Immutable after load, cheap to copy; encode() is thread-safe and takes linear time (n log n within one long word).
// Any bytes can be encoded; encode() never fails.
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
#include "text/fim_tokens.h"

namespace zinc {

struct EncodeOptions {
  bool add_special = false;    // add BOS (and EOS, if the file asks for it)
  bool parse_special = false;  // parse text like <|im_start|> as its control token
};

// A segment of a prompt. With parse_special = false (required for user text) it yields no control tokens, not even one
// that starts in an adjacent segment with parse_special.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  static Result<Tokenizer> load(const GgufFile& file);

  // Appends the tokens of `text` to `out`, as llama.cpp does: without parse_special, user-defined tokens are still
  // parsed, and so are gpt-oss's <|start|>, <|channel|>, <|message|>, <|constrain|> and <|end|>.
  void encode(std::string_view text, EncodeOptions special, std::vector<TokenId>& out) const;
  // Encodes the segments as one text: segment ends are not token boundaries. With add_special, BOS is added unless the
  // segments already start with it.
  void encode(std::span<const TextSegment> segments, bool add_special, std::vector<TokenId>& out) const;
  // The concatenated bytes of all tokens, without the space prefix added by encode(). Skips control tokens.
  std::string decode(std::span<const TokenId> ids) const;

  int32_t n_vocab() const;
  // The bytes of a token, possibly a partial character; the text of a control token. Empty for ids out of range.
  std::string_view bytes(TokenId id) const;
  bool is_control(TokenId id) const;            // parsed only with parse_special, hidden in output
  bool is_eog(TokenId id) const;                // end of generation
  std::span<const TokenId> eog_tokens() const;  // sorted
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;  // with add_special
  bool adds_eos() const;
  const std::optional<FimTokens>& fim_tokens() const;  // nullopt: the model has no fill-in-the-middle
  // The token with this text: a special token by its text in the file, else the token with these bytes.
  std::optional<TokenId> find(std::string_view text) const;

 private:
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

}  // namespace zinc
