// Tokenizer models, selected by tokenizer.ggml.model: tokenize plain text (without special tokens).
// Immutable after load; keeps a reference to the Vocabulary, which must outlive it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "gguf/gguf_file.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  // `at_start`: the text starts the prompt or follows a special token. REQUIRES: text.size() < 4 GiB.
  virtual void encode(std::string_view text, bool at_start, Workspace& workspace, std::vector<TokenId>& out) const = 0;
  virtual bool adds_space() const { return false; }  // space prefix for text that is at_start
};

using TokenizerModelResult = Result<std::unique_ptr<const TokenizerModel>>;

// Each may intern symbols in `vocab`.
using LoadTokenizerModel = TokenizerModelResult(const GgufFile& file, const FoundPretokenizer& pretokenizer,
                                                Vocabulary& vocab);
LoadTokenizerModel load_byte_bpe;       // gpt2: byte-level BPE within the words of a pre-tokenizer
LoadTokenizerModel load_char_bpe;       // gemma4: character BPE within lines, byte fallback
LoadTokenizerModel load_sentencepiece;  // llama: SentencePiece BPE by score over the complete text, byte fallback

}  // namespace zinc
