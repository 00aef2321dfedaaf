#include "engine/ngram_index.h"

#include <algorithm>

namespace zinc {

uint64_t NgramIndex::key_of(std::span<const TokenId> ngram) {
  uint64_t key = 0;
  for (const TokenId id : ngram) key = (key ^ static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15u;
  return key;
}

void NgramIndex::append(std::span<const TokenId> tokens) {
  for (const TokenId id : tokens) {
    tokens_.push_back(id);
    previous_.push_back(-1);
    if (tokens_.size() < kNgramTokens) continue;
    const int32_t end = static_cast<int32_t>(tokens_.size());
    const auto [entry, is_new] = last_.try_emplace(key_of(std::span(tokens_).last(kNgramTokens)), end);
    if (is_new) continue;
    previous_.back() = entry->second;
    entry->second = end;
  }
}

size_t NgramIndex::match_length(std::span<const TokenId> history, size_t end) const {
  const size_t limit = std::min({kMaxMatch, end, history.size()});
  size_t n = 0;
  while (n < limit && tokens_[end - 1 - n] == history[history.size() - 1 - n]) ++n;
  return n;
}

int64_t NgramIndex::find(std::span<const TokenId> history, size_t near) const {
  if (history.size() < kNgramTokens) return -1;
  const auto last = last_.find(key_of(history.last(kNgramTokens)));
  if (last == last_.end()) return -1;
  const auto distance = [&](int64_t end) { return std::abs(end - static_cast<int64_t>(near)); };
  int64_t best = -1;
  size_t best_length = kNgramTokens - 1;
  int32_t end = last->second;
  for (size_t visited = 0; end >= 0 && visited < kMaxCandidates; end = previous_[static_cast<size_t>(end) - 1]) {
    ++visited;
    if (static_cast<size_t>(end) == tokens_.size()) continue;  // no token follows
    const size_t length = match_length(history, static_cast<size_t>(end));
    const bool is_nearer = length == best_length && best >= 0 && distance(end) < distance(best);
    if (length <= best_length && !is_nearer) continue;
    best = end;
    best_length = length;
  }
  return best;
}

}  // namespace zinc
