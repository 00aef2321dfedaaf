#include "engine/token_difference.h"

#include <fmt/core.h>

#include "base/sanitize_for_terminal.h"

namespace zinc {

std::string token_difference(const Tokenizer& draft, const Tokenizer& target) {
  if (draft.n_vocab() != target.n_vocab()) {
    return fmt::format("it has {} tokens, the model {}", draft.n_vocab(), target.n_vocab());
  }
  for (TokenId id = 0; id < target.n_vocab(); ++id) {
    if (draft.bytes(id) == target.bytes(id)) continue;
    return fmt::format("its token {} is '{}', the model's is '{}'", id, sanitize_for_terminal(draft.bytes(id)),
                       sanitize_for_terminal(target.bytes(id)));
  }
  return "";
}

}  // namespace zinc
