#include "sample/token_set.h"

#include <algorithm>
#include <array>

namespace zinc {

TokenSet tokens_containing(std::span<const std::string> texts, int32_t n_vocab,
                           const std::function<std::string_view(TokenId)>& bytes_of) {
  std::array<std::vector<std::string_view>, 256> by_first_byte;
  for (const std::string& text : texts) {
    if (!text.empty()) by_first_byte[static_cast<unsigned char>(text[0])].push_back(text);
  }
  const auto contains_any = [&](std::string_view bytes) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const std::string_view text : by_first_byte[static_cast<unsigned char>(bytes[at])]) {
        if (bytes.substr(at).starts_with(text)) return true;
      }
    }
    return false;
  };

  TokenSet found(static_cast<size_t>(std::max(n_vocab, 0)));
  for (TokenId token = 0; token < n_vocab; ++token) {
    if (contains_any(bytes_of(token))) found.insert(token);
  }
  return found;
}

}  // namespace zinc
