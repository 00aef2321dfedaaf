// What the file and the family say about single tokens: begin and end of text, what is added to a prompt, which tokens
// end a generation, and which are control tokens although the file calls them otherwise.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "gguf/gguf_file.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

struct TokenRoles {
  std::optional<TokenId> bos, eos, unknown;
  bool add_bos = false, add_eos = false;
  std::vector<TokenId> ends;  // sorted: a generation ends at each of them
};

// What holds where the file says nothing.
struct RoleDefaults {
  std::optional<TokenId> bos = {}, eos = {}, unknown = {};
  bool add_bos = false;
  bool force_bos = false;  // whatever the file says
};

// Reads the roles and corrects `types` where a token's text shows that it is (or is not) a control token.
TokenRoles read_roles(const GgufFile& file, const RoleDefaults& defaults, const std::vector<std::string_view>& texts,
                      std::vector<TokenType>& types);

}  // namespace zinc
