// The kinds of tokenizer, by tokenizer.ggml.model: how plain text (without special tokens) becomes tokens.
// A kind is constant after load and keeps a reference to the Vocabulary, which must outlive it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "gguf/gguf_file.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_merge.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

class TokenizerKind {
 public:
  virtual ~TokenizerKind() = default;
  // `at_start`: the text begins the prompt or follows a special token. REQUIRES: text.size() < 4 GiB.
  virtual void encode(std::string_view text, bool at_start, Workspace& space, std::vector<TokenId>& out) const = 0;
  virtual bool adds_space() const { return false; }  // before text that is at_start
};

using TokenizerKindResult = Result<std::unique_ptr<const TokenizerKind>>;

// Each may intern symbols in `vocab`.
using LoadTokenizerKind = TokenizerKindResult(const GgufFile& file, const FoundPretokenizer& pretokenizer,
                                              Vocabulary& vocab);
LoadTokenizerKind load_byte_bpe;  // gpt2: bytes, merged by the file's merge list within the words of a rule
LoadTokenizerKind load_char_bpe;  // gemma4: characters, merged by the file's merge list within lines
LoadTokenizerKind load_scored;    // llama: characters, merged into the token with the best score over the whole text

}  // namespace zinc
