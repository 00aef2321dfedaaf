// The prefix cache: a radix tree over tokens. A node is a sequence of tokens within one page; it holds the page of each
// group with their keys and values, and optionally the recurrent state after its last token. A page also holds the
// tokens before the node's own, back to the start of the page, so nodes may share a page or branch inside it.
//
// Sliding-window layers lose the pages behind their window, and states exist only at checkpoints: a lookup returns the
// longest prefix that a sequence can resume from. Eviction is LRU, separately per resource: whole leaves for pages of
// full attention, single pages or states for the rest. Each namespace has its own root; the memory is shared by all,
// but a namespace can be limited to a share of it. No device; engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "cache/cache_miss.h"
#include "cache/cache_namespace.h"
#include "cache/page_pool.h"

namespace zinc {

// Pages of one sequence or of a path in the tree: per group, by position / kPageTokens; kNoPage behind a window.
using PageTables = std::vector<std::vector<PageId>>;

struct CachePools {
  std::vector<PagePool> pages;  // per group
  PagePool states;
};

struct PrefixMatch {
  int n_common = 0;  // tokens found in the tree
  int n_usable = 0;  // of those, tokens that a sequence can resume from
  CacheMiss miss = CacheMiss::none;
  PageTables pages;     // of the usable tokens; valid until the tree changes
  int state = kNoSlot;  // the recurrent state after them
};

// A serialized node.
struct PrefixRecord {
  int parent = -1;                                    // index of the parent record; -1: none
  CacheNamespace cache_namespace = kSharedNamespace;  // of a record without a parent
  std::vector<TokenId> tokens;
  std::vector<PageId> pages;  // per group
  int state = kNoSlot;
};

class PrefixCache {
 public:
  // windows: of each page group, 0 for unbounded. The pools must outlive the cache.
  PrefixCache(std::vector<int> windows, bool has_states, CachePools& pools);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest prefix of `tokens`, of at most `limit` tokens, that a sequence can resume from, within the namespace.
  PrefixMatch find(CacheNamespace cache_namespace, std::span<const TokenId> tokens, int limit);

  // Inserts tokens whose keys and values are in `pages`; these must not change up to the last token. Where the tree
  // already has the tokens, it keeps its own pages.
  class Node;
  Node* insert(CacheNamespace cache_namespace, std::span<const TokenId> tokens, const PageTables& pages);
  // For a node from insert(), immediately after it: whether it can take the state after its last token. The tree then
  // holds a reference to the slot.
  bool lacks_state(const Node& node) const;
  void attach_state(Node& node, int slot);
  void prune_if_empty(Node& node);  // with its ancestors, as far as they hold neither pages nor a state

  // Evicts a page of the group, or a state slot, that no sequence has pinned. REQUIRES: the cache has one.
  void evict_page(int group);
  void evict_state();
  // Evicts prefixes of the namespace, least recently used first, until it has at most this share of each pool. Pages
  // that a sequence has pinned stay.
  void limit_namespace(CacheNamespace cache_namespace, double share);

  // Every node, parents before children, the most recently used branch first.
  std::vector<PrefixRecord> records() const;
  // Inverse of records(). REQUIRES: the cache is empty; records as above with tokens within a page, and siblings that
  // start with different tokens; pages and slots are pinned.
  void restore(std::span<const PrefixRecord> records);

  uint64_t n_evicted_pages() const { return n_evicted_pages_; }
  int n_nodes() const { return n_nodes_; }

 private:
  struct PathStep {
    Node* node;
    int n_matched;  // of the node's tokens
  };
  using LruOrder = std::set<std::pair<uint64_t, Node*>>;  // least recently used first

  std::vector<PathStep> walk(CacheNamespace cache_namespace, std::span<const TokenId> tokens) const;
  bool has_window(std::span<const PathStep> path, int end) const;
  bool is_in_window(int group, const Node& node, int end) const;
  void touch(size_t resource, Node& node);
  void touch_path(Node& last, int end);
  Node& root_of(CacheNamespace cache_namespace);
  Node* add_child(Node& parent, std::span<const TokenId> tokens);
  void retain_pages(Node& node, const PageTables& pages, int end);
  Node& split(Node& node, size_t n_first);
  void drop_page(size_t group, Node& node);
  void drop_state(Node& node);
  void remove_leaf(Node& node);
  size_t state_resource() const { return windows_.size(); }

  std::vector<int> windows_;
  bool has_states_;
  CachePools& pools_;
  std::map<CacheNamespace, std::unique_ptr<Node>> roots_;
  std::vector<LruOrder> lru_;  // per group the nodes with a page of it, then the nodes with a state
  uint64_t clock_ = 0;
  uint64_t n_evicted_pages_ = 0;
  int n_nodes_ = 0;
};

}  // namespace zinc
