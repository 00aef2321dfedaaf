// The KV cache of many sequences: pages and recurrent-state slots, shared through a prefix cache. Pages of a prompt are
// reserved at admission, because it will certainly need them (of a windowed group those of the window, once); pages of
// the output are allocated as it grows, and grow() can fail. A page is written only by the sequence that allocated it;
// pages from the prefix cache are read-only, and a partially matched page is copied. Engine thread only. Invariants: of
// every group, one page is neither pinned nor reserved, for a copy; a sequence that runs alone can grow to
// CacheSizes::max_length.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/sha256.h"
#include "cache/prefix_cache.h"

namespace zinc {

struct KvCacheOptions {
  CacheSizes sizes;          // every group with one extra page, for copies
  int max_chunk_tokens = 1;  // of one sequence in one step
  int n_sequences = 1;       // that run at the same time
  int n_draft_slots = 0;     // CachePlan::n_draft_slots
};

// Pages and slot of one running sequence. Created by admit(), returned to release() or finish().
struct SequenceCache {
  CacheNamespace cache_namespace = kSharedNamespace;
  double cache_share = 1;  // of the pools, for the prefixes of its namespace after its end
  int rope_scaling = 0;    // of its keys (StepInputs::rope_scalings); its namespace is for this one
  int slot = kNoSlot;
  std::vector<int> draft_slots;  // for the states after the drafted tokens of a verification step
  PageTables pages;
  int n_tokens = 0;             // fed so far
  std::vector<int> n_reserved;  // per group: pages of its prompt that it has not allocated yet
};

struct Admission {
  SequenceCache sequence;  // with the cached prefix attached
  int n_common = 0;        // prompt tokens in the prefix cache, usable or not
  CacheMiss miss = CacheMiss::none;
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> create(Backend& backend, std::span<const LayerCache> layers,
                                                 const KvCacheOptions& options);

  // A sequence that starts with `prompt`; up to max_cached tokens of it, a multiple of `alignment`, are attached from
  // the prefix cache, within the namespace. nullopt: does not fit now; running sequences hold so many pages that less
  // than `watermark` of a group would be left. An empty cache admits any prompt with watermark 0. REQUIRES: a free
  // slot.
  std::optional<Admission> admit(std::span<const TokenId> prompt, int max_cached,
                                 CacheNamespace cache_namespace = kSharedNamespace, int watermark = 0,
                                 int alignment = 1);

  // Before a step that feeds positions begin .. end-1; those before `begin` are fed, or in flight in steps that run
  // before it. Releases pages behind windows, evicts and allocates pages. false: they have run out; the sequence holds
  // no more pages than before. REQUIRES: at most max_chunk_tokens tokens.
  bool grow(SequenceCache& sequence, int begin, int end);
  bool grow(SequenceCache& sequence, int end) { return grow(sequence, sequence.n_tokens, end); }
  // Afterwards the sequence has n draft slots, if the model has states. May evict cached states. false: all sequences
  // together would hold more than KvCacheOptions::n_draft_slots, or all slots are in use; it has what it had before.
  bool allocate_draft_slots(SequenceCache& sequence, int n);
  void release_draft_slots(SequenceCache& sequence);
  // Frees the pages after the first n_tokens positions. REQUIRES: the prompt has been fed.
  void trim(SequenceCache& sequence, int n_tokens);
  // After a verification step whose rows start at n_tokens, with the state after row i > 0 in draft_slots[i - 1]: keeps
  // the first n_rows. Pages without a kept token are freed; the slot becomes that of the last kept row, and what was
  // the slot is a draft slot. REQUIRES: the prompt has been fed; the device's last sampled token is not used again.
  void accept_rows(SequenceCache& sequence, int n_rows);
  // After a step of n_tokens: prefaults some of the next pages, so that no later step pays for many page faults at
  // once.
  void prefault_pages(int n_tokens);
  // After the step: inserts the sequence's `tokens` (all that were fed), with pages and a copy of the state, into the
  // prefix cache.
  void insert_prefix(const SequenceCache& sequence, std::span<const TokenId> tokens);
  void release(SequenceCache sequence);
  // Ends a sequence: insert_prefix, then release, without copying its state; limits its namespace to cache_share.
  void finish(SequenceCache sequence, std::span<const TokenId> tokens);

  // Saves and loads the whole prefix cache, so that it survives a restart. `key` stands for everything that the bytes
  // depend on (model, backend, format); a file with another key, other sizes or corrupt content is an error, and the
  // cache stays empty. If the file has more than fits, the most recently used part is loaded.
  Status save(const std::filesystem::path& path, const Sha256::Digest& key);
  Status load(const std::filesystem::path& path, const Sha256::Digest& key);  // REQUIRES: the cache is empty
  Status load(std::span<const std::byte> file, std::string_view name, const Sha256::Digest& key);

  // Incremented when pages or slots are freed or inserted. While it is unchanged, admit() fails again.
  uint64_t version() const { return version_; }
  CacheMemory& memory() { return *memory_; }
  const CachePools& pools() const { return pools_; }
  const PrefixCache& prefix_cache() const { return *prefix_cache_; }
  std::span<const int> windows() const { return windows_; }
  bool has_states() const { return has_states_; }  // some layers are recurrent

 private:
  KvCache(std::unique_ptr<CacheMemory> memory, std::vector<int> windows, const KvCacheOptions& options);
  int n_needed(size_t group, int length) const;
  int n_unreserved(size_t group) const;
  int n_unpinned_slots() const;
  bool fits(const PrefixMatch& match, int n_prompt, int watermark) const;
  void release_behind_window(size_t group, SequenceCache& sequence, int begin);
  PrefixMatch find_aligned(CacheNamespace cache_namespace, std::span<const TokenId> prompt, int limit, int alignment);
  PageId allocate_page(size_t group);
  int allocate_slot();
  void attach(const PrefixMatch& match, SequenceCache& sequence);
  Status restore(std::vector<PrefixRecord> records, std::span<const std::span<const std::byte>> pages,
                 std::span<const std::byte> states);

  std::unique_ptr<CacheMemory> memory_;
  std::vector<int> windows_;
  bool has_states_;
  int max_chunk_tokens_;
  int n_draft_slots_;  // that sequences may hold
  int n_held_draft_slots_ = 0;
  CachePools pools_;
  std::unique_ptr<PrefixCache> prefix_cache_;
  std::vector<int> n_reserved_;    // per group, for the prompts of all sequences
  std::vector<int> n_prefaulted_;  // per group: pages, from the first on, that were used or prefaulted
  int n_prefault_ahead_;  // pages prefaulted beyond those used: one per sequence and step, several for a prefill chunk
  uint64_t version_ = 0;
};

}  // namespace zinc
