// The caches of many sequences over one model: pages and state slots shared through a prefix tree, reserved before they
// are needed. A page is written by the one sequence that took it; what comes from the tree is read only, and a page
// that is matched in part is copied. Engine thread only.
// Invariant: what running sequences hold plus what they may still take never exceeds what there is.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/sha256.h"
#include "cache/prefix_tree.h"

namespace zinc {

struct KvCacheOptions {
  CacheSizes sizes;        // every group with one page to spare, for copies
  int max_run_tokens = 1;  // of one sequence in one step
  int n_sequences = 1;     // that run at once
};

// What one running sequence holds. Made by admit(), given back by release().
struct SequenceCache {
  CacheOwner owner = kEverybody;
  int slot = kNoSlot;
  PageTables pages;
  int n_tokens = 0;             // fed so far
  std::vector<int> n_reserved;  // per group: pages it may still take (unbounded groups), or hold at all (windowed)
};

struct Admission {
  SequenceCache sequence;  // with the cached tokens fed
  int n_common = 0;        // tokens of the prompt seen before
  CacheMiss miss = CacheMiss::none;
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> create(Backend& backend, std::span<const LayerCache> layers,
                                                 const KvCacheOptions& options);

  // A sequence that begins with `prompt` and grows to at most `max_length`; up to max_cached tokens of the prompt come
  // from the tree, where the owner has said them. nullopt: not now, others hold too much. REQUIRES: a free slot.
  std::optional<Admission> admit(std::span<const TokenId> prompt, int max_length, int max_cached,
                                 CacheOwner owner = kEverybody);

  // Before a step that feeds positions n_tokens .. end-1: takes their pages, gives back those behind windows. Cannot
  // fail. REQUIRES: end within max_length, a run within max_run_tokens.
  void grow(SequenceCache& sequence, int end);
  // After a step of n_tokens: makes some pages ready that later ones will take, so that no step pays for many at once.
  void make_ready(int n_tokens);
  // After the step: `tokens` are what was fed in all. They can be found from now on, and gone on from.
  void remember(const SequenceCache& sequence, std::span<const TokenId> tokens);
  void release(SequenceCache sequence);
  // The last of a sequence: remember, then release, without copying its state.
  void retire(SequenceCache sequence, std::span<const TokenId> tokens);

  // The prefix tree on disk, with all that it keeps: it survives a restart. `key` stands for everything the bytes
  // depend on (model, backend, format); a file with another key, a damaged one or one of other sizes is an error, and
  // the cache stays empty. Where the file has more than fits, what was used most recently is taken.
  Status save(const std::filesystem::path& path, const Sha256::Digest& key);
  Status load(const std::filesystem::path& path, const Sha256::Digest& key);  // REQUIRES: nothing is cached
  Status load(std::span<const std::byte> file, std::string_view name, const Sha256::Digest& key);

  // Grows whenever something has come free or can be found: before that, what admit() refused it refuses again.
  uint64_t n_changes() const { return n_changes_; }
  CacheMemory& memory() { return *memory_; }
  const CachePools& pools() const { return pools_; }
  const PrefixTree& tree() const { return *tree_; }
  std::span<const int> windows() const { return windows_; }
  bool has_states() const { return has_states_; }  // some layers are recurrent
  size_t total_bytes() const;

 private:
  KvCache(std::unique_ptr<CacheMemory> memory, std::vector<int> windows, const KvCacheOptions& options);
  int n_needed(size_t group, int max_length) const;
  bool fits(const PrefixMatch& match, int max_length) const;
  PageId take_page(size_t group);
  int take_slot();
  void adopt(const PrefixMatch& match, SequenceCache& sequence);
  Status take_back(std::vector<PrefixRecord> records, std::span<const std::span<const std::byte>> pages,
                   std::span<const std::byte> states);

  std::unique_ptr<CacheMemory> memory_;
  std::vector<int> windows_;
  bool has_states_;
  int max_run_tokens_;
  CachePools pools_;
  std::unique_ptr<PrefixTree> tree_;
  std::vector<int> n_reserved_;  // per group, of all sequences
  std::vector<int> n_ready_;     // per group: pages, from the first on, that have been used or made ready
  int n_ahead_;                  // pages ready beyond those used: each sequence may take one in a step, a run several
  uint64_t n_changes_ = 0;
};

}  // namespace zinc
