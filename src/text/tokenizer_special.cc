#include "text/tokenizer_special.h"

#include <algorithm>

namespace zinc {
namespace {

size_t pair_of(char first, char second) {
  return static_cast<size_t>(static_cast<uint8_t>(first)) << 8 | static_cast<uint8_t>(second);
}

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

void SpecialTokenFinder::add(std::string_view text, TokenId id, TokenType type, bool rstrip) {
  if (text.empty() || text.size() > kMaxBytes) return;
  const auto node = static_cast<size_t>(trie_.add(text));
  entries_.resize(trie_.size());
  if (entries_[node].id >= 0) return;  // duplicate text: the first token wins
  entries_[node] = {id, type, rstrip};
  first_bytes_.set(static_cast<uint8_t>(text[0]));
  if (text.size() > 1) {
    first_pairs_.set(pair_of(text[0], text[1]));
  } else {
    for (int second = 0; second < 256; ++second) first_pairs_.set(pair_of(text[0], static_cast<char>(second)));
  }
}

std::optional<SpecialTokenFinder::Match> SpecialTokenFinder::find_next(std::string_view text, size_t from,
                                                                       const TrustedRanges& trusted,
                                                                       size_t& range_cursor) const {
  for (size_t at = from; at < text.size(); ++at) {
    const bool may_begin = at + 1 < text.size() ? first_pairs_.test(pair_of(text[at], text[at + 1]))
                                                : first_bytes_.test(static_cast<uint8_t>(text[at]));
    if (!may_begin) continue;
    const std::vector<TrustedRanges::Range>& ranges = trusted.ranges;
    while (range_cursor < ranges.size() && ranges[range_cursor].end <= at) ++range_cursor;
    const bool is_trusted = range_cursor < ranges.size() && ranges[range_cursor].begin <= at;
    const size_t trusted_end = is_trusted ? ranges[range_cursor].end : at;
    if (const auto match = match_at(text, at, trusted_end, trusted.visible_control)) return match;
  }
  return std::nullopt;
}

std::optional<SpecialTokenFinder::Match> SpecialTokenFinder::match_at(std::string_view text, size_t at,
                                                                      size_t trusted_end, bool visible_control) const {
  const Entry* longest = nullptr;
  size_t end = at;
  int32_t node = ByteTrie::kRoot;
  for (size_t next = at; next < text.size();) {
    node = trie_.child(node, text[next]);
    if (node == ByteTrie::kNone) break;
    ++next;
    const Entry& entry = entries_[static_cast<size_t>(node)];
    if (entry.id < 0) continue;
    const bool allowed = next <= trusted_end || entry.type == TokenType::user_defined ||
                         (visible_control && entry.type == TokenType::visible_control);
    if (!allowed) continue;
    longest = &entry;
    end = next;
  }
  if (!longest) return std::nullopt;
  while (longest->rstrip && end < text.size() && is_ascii_space(text[end])) ++end;
  return Match{longest->id, at, end};
}

std::optional<TokenId> SpecialTokenFinder::find(std::string_view text) const {
  int32_t node = ByteTrie::kRoot;
  for (const char byte : text) {
    node = trie_.child(node, byte);
    if (node == ByteTrie::kNone) return std::nullopt;
  }
  if (static_cast<size_t>(node) >= entries_.size() || entries_[static_cast<size_t>(node)].id < 0) return std::nullopt;
  return entries_[static_cast<size_t>(node)].id;
}

}  // namespace zinc
