#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "cache/cache_plan.h"

namespace zinc {

Result<std::unique_ptr<KvCache>> KvCache::create(Backend& backend, std::span<const LayerCache> layers,
                                                 const KvCacheOptions& options) {
  ZINC_TRY(memory, backend.allocate_cache(layers, options.sizes));
  std::vector<int> windows;
  for (const PageGroup& group : page_groups(layers)) windows.push_back(group.window);
  return std::unique_ptr<KvCache>(new KvCache(std::move(memory), std::move(windows), options));
}

KvCache::KvCache(std::unique_ptr<CacheMemory> memory, std::vector<int> windows, const KvCacheOptions& options)
    : memory_(std::move(memory)),
      windows_(std::move(windows)),
      has_states_(memory_->state_bytes() > 0),
      max_run_tokens_(options.max_run_tokens),
      pools_{.pages = {}, .states = PagePool(options.sizes.n_slots)},
      n_reserved_(windows_.size(), 0),
      n_ready_(windows_.size(), 0),
      n_ahead_(options.n_sequences + pages_of(options.max_run_tokens)) {
  for (const int n : options.sizes.n_pages) pools_.pages.emplace_back(n);
  tree_ = std::make_unique<PrefixTree>(windows_, has_states_, pools_);
  make_ready(n_ahead_ * kPageTokens);
}

// Twice what a step of so many tokens takes on the average, until enough are there.
void KvCache::make_ready(int n_tokens) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    const PagePool& pool = pools_.pages[g];
    int& n_ready = n_ready_[g];
    n_ready = std::max(n_ready, pool.n_used());
    const int wanted = std::min(pool.n_total(), pool.n_used() + n_ahead_) - n_ready;
    const int n = std::min(wanted, 2 * pages_of(n_tokens));
    if (n <= 0) continue;
    memory_->make_ready(static_cast<int>(g), n_ready, n);
    n_ready += n;
  }
}

size_t KvCache::total_bytes() const {
  size_t n = memory_->state_bytes() * static_cast<size_t>(pools_.states.n_total());
  for (size_t g = 0; g < windows_.size(); ++g) {
    n += memory_->page_bytes(static_cast<int>(g)) * static_cast<size_t>(pools_.pages[g].n_total());
  }
  return n;
}

// Pages a sequence holds at most at a time.
int KvCache::n_needed(size_t group, int max_length) const {
  return windows_[group] == 0 ? pages_of(max_length) : window_pages(windows_[group], max_run_tokens_, max_length);
}

// A sequence's pages of an unbounded group are those it shares and those it will take; shared ones count once. In a
// windowed group it is charged for its whole window, shared or not: pages come and go there.
bool KvCache::fits(const PrefixMatch& match, int max_length) const {
  const size_t n_shared = static_cast<size_t>(match.n_usable / kPageTokens);
  for (size_t g = 0; g < windows_.size(); ++g) {
    const PagePool& pool = pools_.pages[g];
    int wanted = n_reserved_[g] + n_needed(g, max_length);
    if (windows_[g] == 0) {
      wanted += pool.n_pinned();
      for (size_t p = 0; p < n_shared; ++p) wanted -= pool.is_pinned(match.pages[g][p]) ? 1 : 0;
    }
    if (wanted > pool.n_total() - 1) return false;  // one is for copies
  }
  return true;
}

PageId KvCache::take_page(size_t group) {
  if (pools_.pages[group].n_free() == 0) tree_->free_page(static_cast<int>(group));
  return pools_.pages[group].take();
}

int KvCache::take_slot() {
  if (pools_.states.n_free() == 0) tree_->free_state();
  return pools_.states.take();
}

// Whole pages are shared, a part-full one is copied. Sources are pinned while there is something to take: taking may
// evict.
void KvCache::adopt(const PrefixMatch& match, SequenceCache& sequence) {
  sequence.n_tokens = match.n_usable;
  sequence.pages = match.pages;
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const PageId page : match.pages[g]) {
      if (page != kNoPage) pools_.pages[g].pin(page);
    }
  }
  if (match.state != kNoSlot) pools_.states.pin(match.state);
  sequence.slot = take_slot();
  if (match.state != kNoSlot) {
    memory_->copy_state(match.state, sequence.slot);
    pools_.states.unpin(match.state);
  }
  if (match.n_usable % kPageTokens == 0) return;
  for (size_t g = 0; g < windows_.size(); ++g) {
    const PageId source = match.pages[g].back();
    const PageId own = take_page(g);
    memory_->copy_page(static_cast<int>(g), source, own);
    pools_.pages[g].unpin(source);
    sequence.pages[g].back() = own;
  }
}

std::optional<Admission> KvCache::admit(std::span<const TokenId> prompt, int max_length, int max_cached,
                                        CacheOwner owner) {
  const PrefixMatch match = tree_->find(owner, prompt, max_cached);
  if (!fits(match, max_length)) return std::nullopt;
  Admission admission{.sequence = {}, .n_common = match.n_common, .miss = match.miss};
  SequenceCache& sequence = admission.sequence;
  sequence.owner = owner;
  adopt(match, sequence);
  sequence.n_reserved.resize(windows_.size());
  for (size_t g = 0; g < windows_.size(); ++g) {
    const int n_held = windows_[g] == 0 ? static_cast<int>(sequence.pages[g].size()) : 0;
    sequence.n_reserved[g] = n_needed(g, max_length) - n_held;
    n_reserved_[g] += sequence.n_reserved[g];
  }
  return admission;
}

void KvCache::grow(SequenceCache& sequence, int end) {
  ZINC_CHECK(end > sequence.n_tokens && end - sequence.n_tokens <= max_run_tokens_);
  for (size_t g = 0; g < windows_.size(); ++g) {
    std::vector<PageId>& pages = sequence.pages[g];
    if (windows_[g] > 0) {
      const int n_behind = std::max(0, sequence.n_tokens - windows_[g] + 1) / kPageTokens;
      for (int p = n_behind; p-- > 0 && pages[static_cast<size_t>(p)] != kNoPage;) {
        pools_.pages[g].unpin(std::exchange(pages[static_cast<size_t>(p)], kNoPage));
      }
    }
    while (static_cast<int>(pages.size()) < pages_of(end)) {
      pages.push_back(take_page(g));
      if (windows_[g] > 0) continue;
      ZINC_CHECK(sequence.n_reserved[g] > 0);
      --sequence.n_reserved[g];
      --n_reserved_[g];
    }
  }
}

void KvCache::remember(const SequenceCache& sequence, std::span<const TokenId> tokens) {
  ZINC_CHECK(static_cast<int>(tokens.size()) == sequence.n_tokens);
  if (tokens.empty()) return;
  ++n_changes_;
  PrefixTree::Node* node = tree_->insert(sequence.owner, tokens, sequence.pages);
  if (!tree_->wants_state(*node)) return;
  const bool has_spare = pools_.states.n_total() > pools_.states.n_pinned();
  if (!has_spare) return tree_->forget_if_empty(*node);
  const int slot = take_slot();  // may forget nodes that hold nothing, which a model without pages has
  node = tree_->insert(sequence.owner, tokens, sequence.pages);
  memory_->copy_state(sequence.slot, slot);
  tree_->put_state(*node, slot);
  pools_.states.unpin(slot);
}

void KvCache::release(SequenceCache sequence) {
  ++n_changes_;
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const PageId page : sequence.pages[g]) {
      if (page != kNoPage) pools_.pages[g].unpin(page);
    }
    n_reserved_[g] -= sequence.n_reserved[g];
  }
  pools_.states.unpin(sequence.slot);
}

void KvCache::retire(SequenceCache sequence, std::span<const TokenId> tokens) {
  ZINC_CHECK(static_cast<int>(tokens.size()) == sequence.n_tokens);
  if (!tokens.empty()) {
    PrefixTree::Node* node = tree_->insert(sequence.owner, tokens, sequence.pages);
    if (tree_->wants_state(*node)) tree_->put_state(*node, sequence.slot);
  }
  release(std::move(sequence));
}

}  // namespace zinc
