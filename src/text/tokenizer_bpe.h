// BPE merging: a word starts as symbols (bytes or characters); the adjacent pair with the lowest rank is merged,
// leftmost first, until no pair merges. O(n log n), with a faster path for short words. One Workspace per call.
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
  int32_t id;               // Vocabulary::kNone: no such symbol
};

struct Merge {
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNever;
  int32_t symbol = Vocabulary::kNone;
};

// Caches the tokens of words within one call, so that a frequent word is merged once. Direct-mapped: a new word evicts
// the old one of its slot.
class WordCache {
 public:
  explicit WordCache(size_t text_bytes);

  // On a hit appends the tokens of `word` and returns true.
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

// Scratch memory for encoding one text.
class Workspace {
 public:
  explicit Workspace(size_t text_bytes) : cache(text_bytes) {}

  WordCache cache;
  std::vector<Symbol> symbols;
  std::string text;  // a normalized copy of the text, if needed

  // A queued merge; may be stale.
  struct Candidate {
    uint32_t rank, left;
    int32_t symbol;
    uint32_t n_bytes;  // of both symbols; a different length means the entry is stale
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };
  std::vector<Candidate> queue;
  std::vector<uint32_t> previous, next;
};

// Up to this many symbols a linear search beats the priority queue (bench/tokenizer_bench.cc).
constexpr size_t kShortWord = 32;

// find(left, right) returns the merge of two adjacent symbols; rank kNever: none.
template <class Find>
void merge_short(std::vector<Symbol>& symbols, Find find) {
  std::array<Merge, kShortWord> merges;  // merges[i]: of symbols i and i + 1
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
  LongMerger(Workspace& workspace, Find find) : workspace_(workspace), symbols_(workspace.symbols), find_(find) {}

  void run() {
    const auto n = static_cast<uint32_t>(symbols_.size());
    workspace_.queue.clear();
    workspace_.previous.resize(n);
    workspace_.next.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      workspace_.previous[i] = i == 0 ? kEnd : i - 1;
      workspace_.next[i] = i + 1 == n ? kEnd : i + 1;
    }
    for (uint32_t i = 0; i + 1 < n; ++i) add(i, i + 1);
    std::make_heap(workspace_.queue.begin(), workspace_.queue.end(), std::greater<>());
    while (!workspace_.queue.empty()) {
      std::pop_heap(workspace_.queue.begin(), workspace_.queue.end(), std::greater<>());
      const Workspace::Candidate best = workspace_.queue.back();
      workspace_.queue.pop_back();
      if (is_current(best)) merge(best);
    }
    std::erase_if(symbols_, [](const Symbol& symbol) { return symbol.n_bytes == 0; });
  }

 private:
  static constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

  bool add(uint32_t left, uint32_t right) {
    const Merge merge = find_(symbols_[left], symbols_[right]);
    if (merge.rank == Merge::kNever) return false;
    workspace_.queue.push_back({merge.rank, left, merge.symbol, symbols_[left].n_bytes + symbols_[right].n_bytes});
    return true;
  }
  void push(uint32_t left, uint32_t right) {
    if (left == kEnd || right == kEnd || !add(left, right)) return;
    std::push_heap(workspace_.queue.begin(), workspace_.queue.end(), std::greater<>());
  }

  // Not stale: a merged-away symbol has no bytes, a grown one changes the length of the pair.
  bool is_current(const Workspace::Candidate& pair) const {
    const uint32_t right = workspace_.next[pair.left];
    return symbols_[pair.left].n_bytes != 0 && right != kEnd &&
           symbols_[pair.left].n_bytes + symbols_[right].n_bytes == pair.n_bytes;
  }

  void merge(const Workspace::Candidate& pair) {
    const uint32_t right = workspace_.next[pair.left], after = workspace_.next[right];
    symbols_[pair.left].id = pair.symbol;
    symbols_[pair.left].n_bytes = pair.n_bytes;
    symbols_[right].n_bytes = 0;
    workspace_.next[pair.left] = after;
    if (after != kEnd) workspace_.previous[after] = pair.left;
    push(workspace_.previous[pair.left], pair.left);
    push(pair.left, after);
  }

  Workspace& workspace_;
  std::vector<Symbol>& symbols_;
  Find find_;
};

// Merges workspace.symbols in place.
template <class Find>
void merge_symbols(Workspace& workspace, Find find) {
  if (workspace.symbols.size() <= kShortWord) {
    merge_short(workspace.symbols, find);
  } else {
    LongMerger<Find>(workspace, find).run();
  }
}

}  // namespace zinc
