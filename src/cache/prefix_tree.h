// What has been computed before, as a radix tree over tokens. A node is a run of tokens within one page; it keeps the
// page of each group that holds their keys and values, and may keep the recurrent state after its last token. A page
// holds the tokens before the node's own as well, back to the page's begin, so nodes may share a page or branch in it.
//
// Sliding layers lose pages behind their window, and states exist only where they were put: a lookup gives the longest
// prefix that can be continued from. What is least recently used goes first: whole leaves for pages that every
// continuation needs, single pages or states for the rest. Each owner has a root of its own: what one has said no other
// finds; only the room is everybody's. No device; engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "cache/cache_miss.h"
#include "cache/cache_owner.h"
#include "cache/page_pool.h"

namespace zinc {

inline constexpr int kNoSlot = -1;

// Pages of one sequence or of a path of the tree: per group, by position / kPageTokens; kNoPage behind a window.
using PageTables = std::vector<std::vector<PageId>>;

struct CachePools {
  std::vector<PagePool> pages;  // per group
  PagePool states;
};

struct PrefixMatch {
  int n_common = 0;  // tokens that lie in the tree
  int n_usable = 0;  // of those, from which a sequence can go on
  CacheMiss miss = CacheMiss::none;
  PageTables pages;     // of the usable tokens; held by the tree only until it changes next
  int state = kNoSlot;  // the recurrent state after them
};

// A node, for taking the tree elsewhere and back.
struct PrefixRecord {
  int parent = -1;                // index of the record it goes on from; -1: none
  CacheOwner owner = kEverybody;  // of a record that goes on from none
  std::vector<TokenId> tokens;
  std::vector<PageId> pages;  // per group
  int state = kNoSlot;
};

class PrefixTree {
 public:
  // windows: of each page group, 0 for unbounded. The pools must outlive the tree.
  PrefixTree(std::vector<int> windows, bool has_states, CachePools& pools);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest prefix of `tokens` to go on from, of at most `limit` tokens, among what the owner has said.
  PrefixMatch find(CacheOwner owner, std::span<const TokenId> tokens, int limit);

  // Remembers tokens whose keys and values lie in `pages`, which stay as they are up to the last token. Where the tree
  // has the tokens already, it keeps its own pages.
  class Node;
  Node* insert(CacheOwner owner, std::span<const TokenId> tokens, const PageTables& pages);
  // A node from insert(), used at once, may take the state after its last token. The tree then keeps the slot.
  bool wants_state(const Node& node) const;
  void put_state(Node& node, int slot);
  void forget_if_empty(Node& node);  // where no state came after all

  // Frees a page of the group, or a slot, that no sequence has pinned. REQUIRES: there is one that the tree keeps.
  void free_page(int group);
  void free_state();

  // Every node, parents before children, the most recently used branch first.
  std::vector<PrefixRecord> records() const;
  // The other way round. REQUIRES: an empty tree; records as above whose runs stay within a page, and whose siblings
  // begin with different tokens; pages and slots that somebody has pinned.
  void restore(std::span<const PrefixRecord> records);

  uint64_t n_evicted_pages() const { return n_evicted_pages_; }
  int n_nodes() const { return n_nodes_; }

 private:
  struct PathStep {
    Node* node;
    int n_matched;  // of the node's tokens
  };
  using Recency = std::set<std::pair<uint64_t, Node*>>;  // the least recently used first

  std::vector<PathStep> walk(CacheOwner owner, std::span<const TokenId> tokens) const;
  bool has_window(std::span<const PathStep> path, int end) const;
  bool is_in_window(int group, const Node& node, int end) const;
  void touch(size_t resource, Node& node);
  void touch_path(Node& last, int end);
  Node& root_of(CacheOwner owner);
  Node* add_child(Node& parent, std::span<const TokenId> tokens);
  void hold_pages(Node& node, const PageTables& pages, int end);
  Node& split(Node& node, size_t n_first);
  void drop_page(size_t group, Node& node);
  void drop_state(Node& node);
  void remove_leaf(Node& node);
  size_t state_resource() const { return windows_.size(); }

  std::vector<int> windows_;
  bool has_states_;
  CachePools& pools_;
  std::map<CacheOwner, std::unique_ptr<Node>> roots_;
  std::vector<Recency> recency_;  // per group the nodes with a page of it, then those with a state
  uint64_t now_ = 0;
  uint64_t n_evicted_pages_ = 0;
  int n_nodes_ = 0;
};

}  // namespace zinc
