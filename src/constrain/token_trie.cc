#include "constrain/token_trie.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr size_t kMaxTokenBytes = std::numeric_limits<uint16_t>::max() - 2;

// The number of characters of a plain token; nullopt: it is not plain.
std::optional<size_t> n_plain_chars(std::string_view bytes) {
  size_t n = 0;
  for (; !bytes.empty(); ++n) {
    const Utf8Char c = next_utf8(bytes);
    if (!c.valid || !TokenTrie::is_plain(c.code) || n == TokenTrie::kMaxPlainChars) return std::nullopt;
    bytes.remove_prefix(static_cast<size_t>(c.n_bytes));
  }
  return n;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  const auto n_vocab = static_cast<size_t>(tokenizer.n_vocab());
  plain_.fill(TokenSet(n_vocab));
  size_t n_control = 0;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) n_control += tokenizer.is_control(id) || tokenizer.is_eog(id);
  control_texts_.reserve(n_control);  // entries point into it
  std::vector<Entry> all, not_plain;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    std::string_view bytes = tokenizer.bytes(id);
    if (bytes.empty() || bytes.size() > kMaxTokenBytes) continue;
    if (tokenizer.is_control(id) || tokenizer.is_eog(id)) {
      bytes = control_texts_.emplace_back(kControlTokenByte + std::string(bytes));
    } else if (bytes.find(kControlTokenByte) != std::string_view::npos) {
      continue;
    }
    all.push_back({bytes, id});
    const std::optional<size_t> n_chars = n_plain_chars(bytes);
    if (!n_chars) not_plain.push_back({bytes, id});
    for (size_t n = n_chars.value_or(kMaxPlainChars + 1); n <= kMaxPlainChars; ++n) plain_[n].insert(id);
  }
  build(all, all_);
  build(not_plain, not_plain_);
  std::ranges::sort(control_texts_, std::ranges::greater{}, &std::string::size);
}

void TokenTrie::build(const std::vector<Entry>& entries, Nodes& out) {
  std::vector<Entry> sorted = entries;
  std::ranges::stable_sort(sorted, {}, &Entry::bytes);
  std::vector<uint32_t> path;  // nodes of the last token's bytes
  std::string_view last;
  const auto close_below = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) out.nodes[path.back()].end = static_cast<uint32_t>(out.nodes.size());
  };
  for (const auto& [bytes, token] : sorted) {
    close_below(static_cast<size_t>(std::ranges::mismatch(bytes, last).in1 - bytes.begin()));
    while (path.size() < bytes.size()) {
      path.push_back(static_cast<uint32_t>(out.nodes.size()));
      out.nodes.push_back({.end = 0,
                           .first_token = static_cast<uint32_t>(out.tokens.size()),
                           .n_tokens = 0,
                           .depth = static_cast<uint16_t>(path.size() - 1),
                           .byte = static_cast<uint8_t>(bytes[path.size() - 1])});
    }
    out.tokens.push_back(token);
    ++out.nodes[path.back()].n_tokens;  // tokens with the same bytes are adjacent
    depth_ = std::max(depth_, static_cast<uint16_t>(bytes.size()));
    last = bytes;
  }
  close_below(0);
}

std::string TokenTrie::mark_control_tokens(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const auto found = std::ranges::find_if(control_texts_, [&](const std::string& marked) {
      return text.starts_with(std::string_view(marked).substr(1));
    });
    if (found != control_texts_.end()) {
      out += *found;
      text.remove_prefix(found->size() - 1);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace zinc
