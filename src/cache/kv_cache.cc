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
      max_chunk_tokens_(options.max_chunk_tokens),
      n_draft_slots_(options.n_draft_slots),
      pools_{.pages = {}, .states = PagePool(options.sizes.n_slots)},
      n_reserved_(windows_.size(), 0),
      n_prefaulted_(windows_.size(), 0),
      n_prefault_ahead_(options.n_sequences + pages_of(options.max_chunk_tokens)) {
  for (const int n : options.sizes.n_pages) pools_.pages.emplace_back(n);
  for (size_t g = 0; g < windows_.size(); ++g) ZINC_CHECK(n_needed(g, options.sizes.max_length) <= n_unreserved(g));
  prefix_cache_ = std::make_unique<PrefixCache>(windows_, has_states_, pools_);
  prefault_pages(n_prefault_ahead_ * kPageTokens);
}

// Twice as many as a step of this size uses on average, until enough are prefaulted.
void KvCache::prefault_pages(int n_tokens) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    const PagePool& pool = pools_.pages[g];
    int& n_prefaulted = n_prefaulted_[g];
    n_prefaulted = std::max(n_prefaulted, pool.high_water());
    const int wanted = std::min(pool.n_total(), pool.high_water() + n_prefault_ahead_) - n_prefaulted;
    const int n = std::min(wanted, 2 * pages_of(n_tokens));
    if (n <= 0) continue;
    memory_->prefault_pages(static_cast<int>(g), n_prefaulted, n);
    n_prefaulted += n;
  }
}

// Pages that a sequence holds at most until it has this length.
int KvCache::n_needed(size_t group, int length) const {
  return windows_[group] == 0 ? pages_of(length) : window_pages(windows_[group], max_chunk_tokens_, length);
}

// Free or evictable pages, without those reserved for prompts and the one for copies.
int KvCache::n_unreserved(size_t group) const {
  const PagePool& pool = pools_.pages[group];
  return pool.n_total() - 1 - pool.n_pinned() - n_reserved_[group];
}

// Free or evictable.
int KvCache::n_unpinned_slots() const { return pools_.states.n_total() - pools_.states.n_pinned(); }

// A slot may be missing for a moment, while a sequence that has ended still has rows in flight. The state that the
// sequence starts from must not be evicted for its slot. Pages shared with running sequences need no further page. That
// does not hold in a windowed group, where a sequence releases them as its window moves and others may still hold them.
bool KvCache::fits(const PrefixMatch& match, int n_prompt, int watermark) const {
  const bool keeps_state = match.state != kNoSlot && !pools_.states.is_pinned(match.state);
  if (n_unpinned_slots() < (keeps_state ? 2 : 1)) return false;
  const size_t n_shared = static_cast<size_t>(match.n_usable / kPageTokens);
  for (size_t g = 0; g < windows_.size(); ++g) {
    int wanted = n_needed(g, n_prompt) + watermark;
    if (windows_[g] == 0) {
      for (size_t p = 0; p < n_shared; ++p) wanted -= pools_.pages[g].is_pinned(match.pages[g][p]) ? 1 : 0;
    }
    if (wanted > n_unreserved(g)) return false;
  }
  return true;
}

PageId KvCache::allocate_page(size_t group) {
  if (pools_.pages[group].n_free() == 0) prefix_cache_->evict_page(static_cast<int>(group));
  return pools_.pages[group].allocate();
}

int KvCache::allocate_slot() {
  if (pools_.states.n_free() == 0) prefix_cache_->evict_state();
  return pools_.states.allocate();
}

// Full pages are shared, a partial one is copied. Sources are pinned while pages are allocated: allocation may evict.
void KvCache::attach(const PrefixMatch& match, SequenceCache& sequence) {
  sequence.n_tokens = match.n_usable;
  sequence.pages = match.pages;
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const PageId page : match.pages[g]) {
      if (page != kNoPage) pools_.pages[g].pin(page);
    }
  }
  if (match.state != kNoSlot) pools_.states.pin(match.state);
  sequence.slot = allocate_slot();
  if (match.state != kNoSlot) {
    memory_->copy_state(match.state, sequence.slot);
    pools_.states.unpin(match.state);
  }
  if (match.n_usable % kPageTokens == 0) return;
  for (size_t g = 0; g < windows_.size(); ++g) {
    const PageId source = match.pages[g].back();
    const PageId own = allocate_page(g);
    memory_->copy_page(static_cast<int>(g), source, own);
    pools_.pages[g].unpin(source);
    sequence.pages[g].back() = own;
  }
}

// Sequences without windows and states can resume at any position.
PrefixMatch KvCache::find_aligned(CacheNamespace cache_namespace, std::span<const TokenId> prompt, int limit,
                                  int alignment) {
  PrefixMatch match = prefix_cache_->find(cache_namespace, prompt, limit);
  const CacheMiss miss = match.miss;
  while (match.n_usable % alignment != 0) {
    match = prefix_cache_->find(cache_namespace, prompt, match.n_usable - match.n_usable % alignment);
  }
  match.miss = miss;
  return match;
}

std::optional<Admission> KvCache::admit(std::span<const TokenId> prompt, int max_cached, CacheNamespace cache_namespace,
                                        int watermark, int alignment) {
  const int n_prompt = static_cast<int>(prompt.size());
  const PrefixMatch match = find_aligned(cache_namespace, prompt, max_cached, alignment);
  if (!fits(match, n_prompt, watermark)) return std::nullopt;
  Admission admission{.sequence = {}, .n_common = match.n_common, .miss = match.miss};
  SequenceCache& sequence = admission.sequence;
  sequence.cache_namespace = cache_namespace;
  attach(match, sequence);
  sequence.n_reserved.resize(windows_.size());
  for (size_t g = 0; g < windows_.size(); ++g) {
    const auto n_missing = std::ranges::count(sequence.pages[g], kNoPage);
    const int n_held = static_cast<int>(std::ssize(sequence.pages[g]) - n_missing);
    sequence.n_reserved[g] = n_needed(g, n_prompt) - n_held;
    n_reserved_[g] += sequence.n_reserved[g];
  }
  return admission;
}

// A step in flight may still read the pages: they are written by later steps only. The window of the last fed position
// is kept too: an MTP file drafts from there.
void KvCache::release_behind_window(size_t group, SequenceCache& sequence, int begin) {
  if (windows_[group] == 0) return;
  std::vector<PageId>& pages = sequence.pages[group];
  const int n_behind = std::max(0, begin - windows_[group]) / kPageTokens;
  for (int p = n_behind; p-- > 0 && pages[static_cast<size_t>(p)] != kNoPage;) {
    pools_.pages[group].unpin(std::exchange(pages[static_cast<size_t>(p)], kNoPage));
    ++version_;
  }
}

bool KvCache::grow(SequenceCache& sequence, int begin, int end) {
  ZINC_CHECK(begin >= sequence.n_tokens && end > begin && end - begin <= max_chunk_tokens_);
  const auto n_missing = [&](size_t g) { return pages_of(end) - static_cast<int>(sequence.pages[g].size()); };
  for (size_t g = 0; g < windows_.size(); ++g) release_behind_window(g, sequence, begin);
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (n_missing(g) > n_unreserved(g) + sequence.n_reserved[g]) return false;
  }
  for (size_t g = 0; g < windows_.size(); ++g) {
    while (n_missing(g) > 0) {
      sequence.pages[g].push_back(allocate_page(g));
      if (sequence.n_reserved[g] == 0) continue;
      --sequence.n_reserved[g];
      --n_reserved_[g];
    }
  }
  return true;
}

bool KvCache::allocate_draft_slots(SequenceCache& sequence, int n) {
  if (!has_states_) return true;
  const int n_more = n - static_cast<int>(sequence.draft_slots.size());
  const int n_allowed = std::min(n_draft_slots_ - n_held_draft_slots_, n_unpinned_slots());
  if (n_more > n_allowed) return false;
  n_held_draft_slots_ += n_more;
  while (std::ssize(sequence.draft_slots) < n) sequence.draft_slots.push_back(allocate_slot());
  while (std::ssize(sequence.draft_slots) > n) {
    pools_.states.unpin(sequence.draft_slots.back());
    sequence.draft_slots.pop_back();
    ++version_;
  }
  return true;
}

void KvCache::release_draft_slots(SequenceCache& sequence) { allocate_draft_slots(sequence, 0); }

void KvCache::accept_rows(SequenceCache& sequence, int n_rows) {
  ZINC_CHECK(n_rows >= 1);
  sequence.n_tokens += n_rows;
  if (has_states_ && n_rows > 1) std::swap(sequence.slot, sequence.draft_slots.at(static_cast<size_t>(n_rows) - 2));
  trim(sequence, sequence.n_tokens);
}

void KvCache::trim(SequenceCache& sequence, int n_tokens) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    std::vector<PageId>& pages = sequence.pages[g];
    ZINC_CHECK(pages_of(n_tokens) <= static_cast<int>(pages.size()));
    while (static_cast<int>(pages.size()) > pages_of(n_tokens)) {
      pools_.pages[g].unpin(pages.back());
      pages.pop_back();
      ++version_;
    }
  }
}

void KvCache::insert_prefix(const SequenceCache& sequence, std::span<const TokenId> tokens) {
  ZINC_CHECK(static_cast<int>(tokens.size()) == sequence.n_tokens);
  if (tokens.empty()) return;
  ++version_;
  PrefixCache::Node* node = prefix_cache_->insert(sequence.cache_namespace, tokens, sequence.pages);
  if (!prefix_cache_->lacks_state(*node)) return;
  const bool has_spare = pools_.states.n_total() > pools_.states.n_pinned();
  if (!has_spare) return prefix_cache_->prune_if_empty(*node);
  const int slot = allocate_slot();  // may evict empty nodes (models without KV pages)
  node = prefix_cache_->insert(sequence.cache_namespace, tokens, sequence.pages);
  memory_->copy_state(sequence.slot, slot);
  prefix_cache_->attach_state(*node, slot);
  pools_.states.unpin(slot);
}

void KvCache::release(SequenceCache sequence) {
  ++version_;
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const PageId page : sequence.pages[g]) {
      if (page != kNoPage) pools_.pages[g].unpin(page);
    }
    n_reserved_[g] -= sequence.n_reserved[g];
  }
  pools_.states.unpin(sequence.slot);
  release_draft_slots(sequence);
}

void KvCache::finish(SequenceCache sequence, std::span<const TokenId> tokens) {
  ZINC_CHECK(static_cast<int>(tokens.size()) == sequence.n_tokens);
  if (!tokens.empty()) {
    PrefixCache::Node* node = prefix_cache_->insert(sequence.cache_namespace, tokens, sequence.pages);
    if (prefix_cache_->lacks_state(*node)) prefix_cache_->attach_state(*node, sequence.slot);
  }
  const CacheNamespace cache_namespace = sequence.cache_namespace;
  const double cache_share = sequence.cache_share;
  release(std::move(sequence));
  if (cache_share < 1) prefix_cache_->limit_namespace(cache_namespace, cache_share);
}

}  // namespace zinc
