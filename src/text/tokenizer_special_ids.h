// Special token ids from the file and the model family: BOS, EOS, unknown, end-of-generation tokens, which of them are
// added to a prompt, and corrections of the file's token types.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "gguf/gguf_file.h"
#include "text/fim_tokens.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

struct SpecialTokenIds {
  std::optional<TokenId> bos, eos, unknown;
  bool add_bos = false, add_eos = false;
  std::vector<TokenId> eog_ids;  // end of generation, sorted
  std::optional<FimTokens> fim;
};

// Defaults for keys that the file lacks.
struct SpecialTokenDefaults {
  std::optional<TokenId> bos = {}, eos = {}, unknown = {};
  bool add_bos = false;
  bool force_bos = false;  // overrides the file
};

// Reads the ids and corrects `types` where a token's text shows that it is (or is not) a control token.
SpecialTokenIds read_special_tokens(const GgufFile& file, const SpecialTokenDefaults& defaults,
                                    const std::vector<std::string_view>& texts, std::vector<TokenType>& types);

}  // namespace zinc
