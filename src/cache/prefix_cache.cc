#include "cache/prefix_cache.h"

#include <algorithm>

#include "base/check.h"

namespace zinc {

class PrefixCache::Node {
 public:
  Node* parent = nullptr;  // nullptr: a root
  CacheNamespace cache_namespace = kSharedNamespace;
  int begin = 0;  // position of the first token
  std::vector<TokenId> tokens;
  std::vector<PageId> pages;  // per group
  int state = kNoSlot;
  std::vector<uint64_t> used_at;                      // per resource held
  std::map<TokenId, std::unique_ptr<Node>> children;  // by first token

  int end() const { return begin + static_cast<int>(tokens.size()); }
  size_t page() const { return static_cast<size_t>(begin / kPageTokens); }
  uint64_t last_used() const { return *std::ranges::max_element(used_at); }
  bool is_empty() const {
    return children.empty() && state == kNoSlot && std::ranges::all_of(pages, [](PageId p) { return p == kNoPage; });
  }
};

namespace {

int first_in_window(int window, int end) { return window == 0 ? 0 : std::max(0, end - window + 1); }

size_t n_equal(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

PrefixCache::PrefixCache(std::vector<int> windows, bool has_states, CachePools& pools)
    : windows_(std::move(windows)), has_states_(has_states), pools_(pools) {
  lru_.resize(windows_.size() + 1);
}

// Iterative: recursive destruction would overflow the stack, because long prompts are thousands of nodes deep.
PrefixCache::~PrefixCache() {
  std::vector<std::unique_ptr<Node>> open;
  for (auto& [cache_namespace, root] : roots_) open.push_back(std::move(root));
  while (!open.empty()) {
    const std::unique_ptr<Node> node = std::move(open.back());
    open.pop_back();
    for (auto& [token, child] : node->children) open.push_back(std::move(child));
  }
}

PrefixCache::Node& PrefixCache::root_of(CacheNamespace cache_namespace) {
  std::unique_ptr<Node>& root = roots_[cache_namespace];
  if (!root) {
    root = std::make_unique<Node>();
    root->cache_namespace = cache_namespace;
  }
  return *root;
}

std::vector<PrefixCache::PathStep> PrefixCache::walk(CacheNamespace cache_namespace,
                                                     std::span<const TokenId> tokens) const {
  std::vector<PathStep> path;
  const auto root = roots_.find(cache_namespace);
  if (root == roots_.end()) return path;
  const Node* node = root->second.get();
  while (!tokens.empty()) {
    const auto child = node->children.find(tokens[0]);
    if (child == node->children.end()) break;
    node = child->second.get();
    const size_t n = n_equal(node->tokens, tokens);
    path.push_back({child->second.get(), static_cast<int>(n)});
    if (n < node->tokens.size()) break;
    tokens = tokens.subspan(n);
  }
  return path;
}

bool PrefixCache::is_in_window(int group, const Node& node, int end) const {
  const int first = first_in_window(windows_[static_cast<size_t>(group)], end);
  return static_cast<int>(node.page()) >= first / kPageTokens;
}

// Whether all pages in the window before position `end` are present. In each page only the deepest node of the path
// counts: its page also holds the tokens of the nodes above.
bool PrefixCache::has_window(std::span<const PathStep> path, int end) const {
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (windows_[g] == 0) continue;  // always present
    for (size_t i = path.size(); i-- > 0;) {
      const Node& node = *path[i].node;
      if (!is_in_window(static_cast<int>(g), node, end)) break;
      const bool is_deepest = i + 1 == path.size() || path[i + 1].node->page() != node.page();
      if (is_deepest && node.pages[g] == kNoPage) return false;
    }
  }
  return true;
}

PrefixMatch PrefixCache::find(CacheNamespace cache_namespace, std::span<const TokenId> tokens, int limit) {
  std::vector<PathStep> path = walk(cache_namespace, tokens);
  PrefixMatch match;
  if (!path.empty()) match.n_common = path.back().node->begin + path.back().n_matched;
  bool lacks_window = false;
  for (; !path.empty(); path.pop_back()) {
    const auto& [node, n_matched] = path.back();
    const int end = std::min(node->begin + n_matched, limit);
    if (end <= node->begin) continue;
    if (has_states_ && (node->state == kNoSlot || end < node->end())) continue;
    if (has_window(path, end)) {
      match.n_usable = end;
      break;
    }
    lacks_window = true;
  }
  if (match.n_usable < limit) {
    match.miss = match.n_common == 0                                 ? CacheMiss::nothing
                 : match.n_usable == std::min(match.n_common, limit) ? CacheMiss::diverged
                 : lacks_window                                      ? CacheMiss::window_gone
                                                                     : CacheMiss::no_state;
  }
  match.pages.resize(windows_.size());
  if (path.empty()) return match;
  const size_t n_pages = static_cast<size_t>((match.n_usable + kPageTokens - 1) / kPageTokens);
  for (size_t g = 0; g < windows_.size(); ++g) {
    match.pages[g].assign(n_pages, kNoPage);
    for (const PathStep& step : path) {  // deeper nodes of a page override those above
      if (is_in_window(static_cast<int>(g), *step.node, match.n_usable)) {
        match.pages[g][step.node->page()] = step.node->pages[g];
      }
    }
  }
  if (has_states_) match.state = path.back().node->state;
  touch_path(*path.back().node, match.n_usable);
  if (has_states_) touch(state_resource(), *path.back().node);
  return match;
}

void PrefixCache::touch(size_t resource, Node& node) {
  lru_[resource].erase({node.used_at[resource], &node});
  node.used_at[resource] = ++clock_;
  lru_[resource].insert({node.used_at[resource], &node});
}

// The deepest node is touched first and so is the oldest of the path: the least recently used node of all is always a
// leaf.
void PrefixCache::touch_path(Node& last, int end) {
  for (Node* node = &last; node->parent; node = node->parent) {
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (node->pages[g] != kNoPage && is_in_window(static_cast<int>(g), *node, end)) touch(g, *node);
    }
  }
}

PrefixCache::Node* PrefixCache::add_child(Node& parent, std::span<const TokenId> tokens) {
  auto child = std::make_unique<Node>();
  child->parent = &parent;
  child->cache_namespace = parent.cache_namespace;
  child->begin = parent.end();
  child->tokens.assign(tokens.begin(), tokens.end());
  child->pages.assign(windows_.size(), kNoPage);
  child->used_at.assign(windows_.size() + 1, 0);
  ++n_nodes_;
  Node* added = child.get();
  parent.children.emplace(tokens[0], std::move(child));
  return added;
}

// References those pages of a sequence that the tree lacks and that are in the window before position `end`.
void PrefixCache::retain_pages(Node& node, const PageTables& pages, int end) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (node.pages[g] != kNoPage || !is_in_window(static_cast<int>(g), node, end)) continue;
    const PageId page = pages[g][node.page()];
    if (page == kNoPage) continue;
    node.pages[g] = page;
    pools_.pages[g].add_ref(page);
    touch(g, node);
  }
}

// Splits after n_first tokens: the first part becomes the parent of the rest.
PrefixCache::Node& PrefixCache::split(Node& node, size_t n_first) {
  Node& parent = *node.parent;
  std::unique_ptr<Node> rest = std::move(parent.children.find(node.tokens[0])->second);
  parent.children.erase(node.tokens[0]);
  Node* first = add_child(parent, std::span(node.tokens).first(n_first));
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (node.pages[g] == kNoPage) continue;
    first->pages[g] = node.pages[g];
    pools_.pages[g].add_ref(node.pages[g]);
    touch(g, *first);
  }
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + static_cast<ptrdiff_t>(n_first));
  node.begin += static_cast<int>(n_first);
  node.parent = first;
  first->children.emplace(node.tokens[0], std::move(rest));
  return *first;
}

PrefixCache::Node* PrefixCache::insert(CacheNamespace cache_namespace, std::span<const TokenId> tokens,
                                       const PageTables& pages) {
  ZINC_CHECK(!tokens.empty());
  const int end = static_cast<int>(tokens.size());
  Node* node = &root_of(cache_namespace);
  for (int at = 0; at < end; at = node->end()) {
    const std::span<const TokenId> rest = tokens.subspan(static_cast<size_t>(at));
    const auto child = node->children.find(rest[0]);
    if (child == node->children.end()) {
      const size_t n_page_left = static_cast<size_t>(kPageTokens - at % kPageTokens);
      node = add_child(*node, rest.first(std::min(n_page_left, rest.size())));
    } else {
      Node& existing = *child->second;
      const size_t n = n_equal(existing.tokens, rest);
      node = n < existing.tokens.size() ? &split(existing, n) : &existing;
    }
    retain_pages(*node, pages, end);
  }
  touch_path(*node, end);
  return node;
}

bool PrefixCache::lacks_state(const Node& node) const { return has_states_ && node.state == kNoSlot; }

void PrefixCache::attach_state(Node& node, int slot) {
  ZINC_CHECK(lacks_state(node));
  node.state = slot;
  pools_.states.add_ref(slot);
  touch(state_resource(), node);
}

void PrefixCache::drop_page(size_t group, Node& node) {
  if (node.pages[group] == kNoPage) return;
  lru_[group].erase({node.used_at[group], &node});
  pools_.pages[group].drop_ref(node.pages[group]);
  node.pages[group] = kNoPage;
}

void PrefixCache::drop_state(Node& node) {
  if (node.state == kNoSlot) return;
  lru_[state_resource()].erase({node.used_at[state_resource()], &node});
  pools_.states.drop_ref(node.state);
  node.state = kNoSlot;
}

void PrefixCache::remove_leaf(Node& node) {
  ZINC_CHECK(node.children.empty());
  for (size_t g = 0; g < windows_.size(); ++g) drop_page(g, node);
  drop_state(node);
  --n_nodes_;
  node.parent->children.erase(node.tokens[0]);
}

void PrefixCache::prune_if_empty(Node& node) {
  for (Node* at = &node; at->parent && at->is_empty();) {
    Node* parent = at->parent;
    remove_leaf(*at);
    at = parent;
  }
}

void PrefixCache::evict_page(int group) {
  const size_t g = static_cast<size_t>(group);
  PagePool& pool = pools_.pages[g];
  const bool only_leaves = windows_[g] == 0;
  while (pool.n_free() == 0) {
    LruOrder& oldest_first = lru_[g];
    ZINC_CHECK(!oldest_first.empty());
    const auto is_spare = [&](const auto& entry) {
      const Node& node = *entry.second;
      return !pool.is_pinned(node.pages[g]) && (!only_leaves || node.children.empty());
    };
    // If sequences pin pages below an unpinned node, their leaves have to be removed from the tree first.
    auto victim = std::ranges::find_if(oldest_first, is_spare);
    if (victim == oldest_first.end()) victim = oldest_first.begin();
    Node& node = *victim->second;
    if (only_leaves) {
      remove_leaf(node);
    } else {
      drop_page(g, node);
      prune_if_empty(node);
    }
    ++n_evicted_pages_;
  }
}

void PrefixCache::evict_state() {
  LruOrder& oldest_first = lru_[state_resource()];
  const auto victim = std::ranges::find_if(
      oldest_first, [&](const auto& entry) { return !pools_.states.is_pinned(entry.second->state); });
  ZINC_CHECK(victim != oldest_first.end());
  Node& node = *victim->second;
  drop_state(node);
  prune_if_empty(node);
}

// One pass per resource is enough: a leaf is always less recently used than its parent, which follows as a leaf.
void PrefixCache::limit_namespace(CacheNamespace cache_namespace, double share) {
  const auto is_ours = [&](const auto& entry) { return entry.second->cache_namespace == cache_namespace; };
  for (size_t resource = 0; resource < lru_.size(); ++resource) {
    LruOrder& oldest_first = lru_[resource];
    const bool is_state = resource == state_resource();
    const PagePool& pool = is_state ? pools_.states : pools_.pages[resource];
    const bool only_leaves = !is_state && windows_[resource] == 0;
    auto n_excess = std::ranges::count_if(oldest_first, is_ours) - static_cast<ptrdiff_t>(share * pool.n_total());
    for (auto entry = oldest_first.begin(); entry != oldest_first.end() && n_excess > 0;) {
      Node& node = *entry->second;
      const bool is_victim = is_ours(*entry) && !pool.is_pinned(is_state ? node.state : node.pages[resource]) &&
                             (!only_leaves || node.children.empty());
      ++entry;  // before the node is removed
      if (!is_victim) continue;
      --n_excess;
      if (!is_state) ++n_evicted_pages_;
      if (only_leaves) {
        remove_leaf(node);
        continue;
      }
      is_state ? drop_state(node) : drop_page(resource, node);
      prune_if_empty(node);
    }
  }
}

std::vector<PrefixRecord> PrefixCache::records() const {
  struct Open {
    const Node* node;
    int parent;
    CacheNamespace cache_namespace;
  };
  std::vector<PrefixRecord> records;
  std::vector<Open> open;  // the next one is at the back
  const auto add_children = [&](const Node& node, int index, CacheNamespace cache_namespace) {
    for (const auto& [token, child] : node.children) open.push_back({child.get(), index, cache_namespace});
  };
  const auto sort_from = [&](size_t first) {
    std::sort(open.begin() + static_cast<ptrdiff_t>(first), open.end(),
              [](const Open& a, const Open& b) { return a.node->last_used() < b.node->last_used(); });
  };
  for (const auto& [cache_namespace, root] : roots_) add_children(*root, -1, cache_namespace);
  sort_from(0);
  while (!open.empty()) {
    const Open next = open.back();
    open.pop_back();
    records.push_back({next.parent, next.cache_namespace, next.node->tokens, next.node->pages, next.node->state});
    const size_t first = open.size();
    add_children(*next.node, static_cast<int>(records.size()) - 1, kSharedNamespace);
    sort_from(first);
  }
  return records;
}

void PrefixCache::restore(std::span<const PrefixRecord> records) {
  ZINC_CHECK(n_nodes_ == 0);
  std::vector<Node*> nodes;
  for (const PrefixRecord& record : records) {
    Node& parent = record.parent < 0 ? root_of(record.cache_namespace) : *nodes[static_cast<size_t>(record.parent)];
    Node* node = add_child(parent, record.tokens);
    nodes.push_back(node);
    node->pages = record.pages;
    node->state = record.state;
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (node->pages[g] != kNoPage) pools_.pages[g].add_ref(node->pages[g]);
    }
    if (node->state != kNoSlot) pools_.states.add_ref(node->state);
  }
  for (size_t i = nodes.size(); i-- > 0;) {  // children before parents, the least recently used branch first
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (nodes[i]->pages[g] != kNoPage) touch(g, *nodes[i]);
    }
    if (nodes[i]->state != kNoSlot) touch(state_resource(), *nodes[i]);
  }
}

}  // namespace zinc
