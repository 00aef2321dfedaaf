#include "sample/token_set.h"

#include <algorithm>
#include <array>

namespace zinc {

TokenSet tokens_containing(std::span<const std::string> texts, int32_t n_vocab,
                           const std::function<std::string_view(TokenId)>& bytes_of) {
  std::array<bool, 256> breaks{};  // one-byte texts, the usual ones, by table
  std::vector<std::string_view> longer;
  for (const std::string& text : texts) {
    if (text.size() == 1) breaks[static_cast<unsigned char>(text[0])] = true;
    if (text.size() > 1) longer.push_back(text);
  }

  TokenSet found(static_cast<size_t>(std::max(n_vocab, 0)));
  for (TokenId token = 0; token < n_vocab; ++token) {
    const std::string_view bytes = bytes_of(token);
    const bool match =
        std::any_of(bytes.begin(), bytes.end(), [&](char c) { return breaks[static_cast<unsigned char>(c)]; }) ||
        std::any_of(longer.begin(), longer.end(),
                    [&](std::string_view text) { return bytes.find(text) != std::string_view::npos; });
    if (match) found.insert(token);
  }
  return found;
}

}  // namespace zinc
