// Merging: a word begins as symbols (bytes or characters); the pair of neighbours with the lowest rank becomes one
// symbol, leftmost first, until no pair merges. O(n log n), with a faster way for short words. One Workspace per call.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

struct Symbol {
  uint32_t begin, n_bytes;  // in the word
  int32_t id;               // Vocabulary::kNone: bytes that no token begins with
};

struct Merge {
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNever;
  int32_t symbol = Vocabulary::kNone;
};

// The words of this call and their tokens, so that a frequent word is merged once. Direct-mapped: a newer word of the
// same slot displaces the older.
class WordCache {
 public:
  explicit WordCache(size_t text_bytes);

  // Appends the tokens of `word` and returns true, if they are known.
  bool append(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
    if (slots_.empty() || word.size() > kMaxWord) return false;
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.n_bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) return false;
    out.insert(out.end(), slot.ids, slot.ids + slot.n_ids);
    return true;
  }
  void store(std::string_view word, uint64_t hash, const TokenId* ids, size_t n_ids);

 private:
  static constexpr size_t kMaxWord = 30, kMaxIds = 8;
  struct alignas(64) Slot {  // one cache line
    uint8_t n_bytes = 0, n_ids = 0;
    char word[kMaxWord];
    TokenId ids[kMaxIds];
  };
  std::vector<Slot> slots_;
};

// What encoding one text needs beside the tables.
class Workspace {
 public:
  explicit Workspace(size_t text_bytes) : cache(text_bytes) {}

  WordCache cache;
  std::vector<Symbol> symbols;
  std::string text;  // a changed copy of a piece of text, where one is needed

  // A pair that could merge when it was queued.
  struct Candidate {
    uint32_t rank, left;
    int32_t symbol;
    uint32_t n_bytes;  // of both together: a pair of another length is no longer the pair that was queued
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };
  std::vector<Candidate> queue;
  std::vector<uint32_t> previous, next;
};

// Up to so many symbols the best pair is searched for, not kept in a queue: measured with bench/tokenizer_bench.cc.
constexpr size_t kShortWord = 32;

// find(left, right) returns the Merge of two neighbours, or one that never happens.
template <class Find>
void merge_short(std::vector<Symbol>& symbols, Find find) {
  std::array<Merge, kShortWord> merges;  // merges[i] is of symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) best = merges[i].rank < merges[best].rank ? i : best;
    if (merges[best].rank == Merge::kNever) break;
    symbols[best].id = merges[best].symbol;
    symbols[best].n_bytes += symbols[best + 1].n_bytes;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(n),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + n - 1, merges.begin() + best);
    --n;
    if (best + 1 < n) merges[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(n);
}

template <class Find>
class LongMerger {
 public:
  LongMerger(Workspace& space, Find find) : space_(space), symbols_(space.symbols), find_(find) {}

  void run() {
    const auto n = static_cast<uint32_t>(symbols_.size());
    space_.queue.clear();
    space_.previous.resize(n);
    space_.next.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      space_.previous[i] = i == 0 ? kEnd : i - 1;
      space_.next[i] = i + 1 == n ? kEnd : i + 1;
    }
    for (uint32_t i = 0; i + 1 < n; ++i) add(i, i + 1);
    std::make_heap(space_.queue.begin(), space_.queue.end(), std::greater<>());
    while (!space_.queue.empty()) {
      std::pop_heap(space_.queue.begin(), space_.queue.end(), std::greater<>());
      const Workspace::Candidate best = space_.queue.back();
      space_.queue.pop_back();
      if (is_current(best)) merge(best);
    }
    std::erase_if(symbols_, [](const Symbol& symbol) { return symbol.n_bytes == 0; });
  }

 private:
  static constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

  bool add(uint32_t left, uint32_t right) {
    const Merge merge = find_(symbols_[left], symbols_[right]);
    if (merge.rank == Merge::kNever) return false;
    space_.queue.push_back({merge.rank, left, merge.symbol, symbols_[left].n_bytes + symbols_[right].n_bytes});
    return true;
  }
  void push(uint32_t left, uint32_t right) {
    if (left == kEnd || right == kEnd || !add(left, right)) return;
    std::push_heap(space_.queue.begin(), space_.queue.end(), std::greater<>());
  }

  // A symbol that was merged into its left neighbour has no bytes; one that grew makes the pair longer.
  bool is_current(const Workspace::Candidate& pair) const {
    const uint32_t right = space_.next[pair.left];
    return symbols_[pair.left].n_bytes != 0 && right != kEnd &&
           symbols_[pair.left].n_bytes + symbols_[right].n_bytes == pair.n_bytes;
  }

  void merge(const Workspace::Candidate& pair) {
    const uint32_t right = space_.next[pair.left], after = space_.next[right];
    symbols_[pair.left].id = pair.symbol;
    symbols_[pair.left].n_bytes = pair.n_bytes;
    symbols_[right].n_bytes = 0;
    space_.next[pair.left] = after;
    if (after != kEnd) space_.previous[after] = pair.left;
    push(space_.previous[pair.left], pair.left);
    push(pair.left, after);
  }

  Workspace& space_;
  std::vector<Symbol>& symbols_;
  Find find_;
};

// Merges space.symbols in place.
template <class Find>
void merge_symbols(Workspace& space, Find find) {
  if (space.symbols.size() <= kShortWord) {
    merge_short(space.symbols, find);
  } else {
    LongMerger<Find>(space, find).run();
  }
}

}  // namespace zinc
