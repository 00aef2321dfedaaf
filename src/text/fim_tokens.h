// The tokens of a vocabulary for fill-in-the-middle prompts: PREFIX text SUFFIX text MIDDLE, then the model writes the
// text between. Plain data.
#pragma once

#include <optional>

#include "base/token_id.h"

namespace zinc {

struct FimTokens {
  TokenId prefix, suffix, middle;
  std::optional<TokenId> repository = {}, file_separator = {};  // before other files of the project
};

}  // namespace zinc
