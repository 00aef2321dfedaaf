#include "cache/prefix_tree.h"

#include <algorithm>

#include "base/check.h"

namespace zinc {

class PrefixTree::Node {
 public:
  Node* parent = nullptr;  // of a root
  int begin = 0;           // position of the first token
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

PrefixTree::PrefixTree(std::vector<int> windows, bool has_states, CachePools& pools)
    : windows_(std::move(windows)), has_states_(has_states), pools_(pools) {
  recency_.resize(windows_.size() + 1);
}

// One after the other: by themselves nodes would go each inside its parent, and a text is many thousands of them deep.
PrefixTree::~PrefixTree() {
  std::vector<std::unique_ptr<Node>> open;
  for (auto& [owner, root] : roots_) open.push_back(std::move(root));
  while (!open.empty()) {
    const std::unique_ptr<Node> node = std::move(open.back());
    open.pop_back();
    for (auto& [token, child] : node->children) open.push_back(std::move(child));
  }
}

PrefixTree::Node& PrefixTree::root_of(CacheOwner owner) {
  std::unique_ptr<Node>& root = roots_[owner];
  if (!root) root = std::make_unique<Node>();
  return *root;
}

std::vector<PrefixTree::PathStep> PrefixTree::walk(CacheOwner owner, std::span<const TokenId> tokens) const {
  std::vector<PathStep> path;
  const auto root = roots_.find(owner);
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

bool PrefixTree::is_in_window(int group, const Node& node, int end) const {
  const int first = first_in_window(windows_[static_cast<size_t>(group)], end);
  return static_cast<int>(node.page()) >= first / kPageTokens;
}

// Whether every page is there that position `end` looks back to. In each page the deepest node of the path counts: its
// page holds the tokens of those above it too.
bool PrefixTree::has_window(std::span<const PathStep> path, int end) const {
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (windows_[g] == 0) continue;  // always there
    for (size_t i = path.size(); i-- > 0;) {
      const Node& node = *path[i].node;
      if (!is_in_window(static_cast<int>(g), node, end)) break;
      const bool is_deepest = i + 1 == path.size() || path[i + 1].node->page() != node.page();
      if (is_deepest && node.pages[g] == kNoPage) return false;
    }
  }
  return true;
}

PrefixMatch PrefixTree::find(CacheOwner owner, std::span<const TokenId> tokens, int limit) {
  std::vector<PathStep> path = walk(owner, tokens);
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
    for (const PathStep& step : path) {  // deeper nodes of a page overwrite those above
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

void PrefixTree::touch(size_t resource, Node& node) {
  recency_[resource].erase({node.used_at[resource], &node});
  node.used_at[resource] = ++now_;
  recency_[resource].insert({node.used_at[resource], &node});
}

// The last node first: of nodes used together it is the oldest, so that the oldest node of all is always a leaf.
void PrefixTree::touch_path(Node& last, int end) {
  for (Node* node = &last; node->parent; node = node->parent) {
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (node->pages[g] != kNoPage && is_in_window(static_cast<int>(g), *node, end)) touch(g, *node);
    }
  }
}

PrefixTree::Node* PrefixTree::add_child(Node& parent, std::span<const TokenId> tokens) {
  auto child = std::make_unique<Node>();
  child->parent = &parent;
  child->begin = parent.end();
  child->tokens.assign(tokens.begin(), tokens.end());
  child->pages.assign(windows_.size(), kNoPage);
  child->used_at.assign(windows_.size() + 1, 0);
  ++n_nodes_;
  Node* added = child.get();
  parent.children.emplace(tokens[0], std::move(child));
  return added;
}

// Takes those of a sequence's pages that the tree lacks and position `end` looks back to.
void PrefixTree::hold_pages(Node& node, const PageTables& pages, int end) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (node.pages[g] != kNoPage || !is_in_window(static_cast<int>(g), node, end)) continue;
    const PageId page = pages[g][node.page()];
    if (page == kNoPage) continue;
    node.pages[g] = page;
    pools_.pages[g].keep(page);
    touch(g, node);
  }
}

// The node keeps what follows its first tokens; they become its parent.
PrefixTree::Node& PrefixTree::split(Node& node, size_t n_first) {
  Node& parent = *node.parent;
  std::unique_ptr<Node> rest = std::move(parent.children.find(node.tokens[0])->second);
  parent.children.erase(node.tokens[0]);
  Node* first = add_child(parent, std::span(node.tokens).first(n_first));
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (node.pages[g] == kNoPage) continue;
    first->pages[g] = node.pages[g];
    pools_.pages[g].keep(node.pages[g]);
    touch(g, *first);
  }
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + static_cast<ptrdiff_t>(n_first));
  node.begin += static_cast<int>(n_first);
  node.parent = first;
  first->children.emplace(node.tokens[0], std::move(rest));
  return *first;
}

PrefixTree::Node* PrefixTree::insert(CacheOwner owner, std::span<const TokenId> tokens, const PageTables& pages) {
  ZINC_CHECK(!tokens.empty());
  const int end = static_cast<int>(tokens.size());
  Node* node = &root_of(owner);
  for (int at = 0; at < end; at = node->end()) {
    const std::span<const TokenId> rest = tokens.subspan(static_cast<size_t>(at));
    const auto child = node->children.find(rest[0]);
    if (child == node->children.end()) {
      const size_t room = static_cast<size_t>(kPageTokens - at % kPageTokens);
      node = add_child(*node, rest.first(std::min(room, rest.size())));
    } else {
      Node& known = *child->second;
      const size_t n = n_equal(known.tokens, rest);
      node = n < known.tokens.size() ? &split(known, n) : &known;
    }
    hold_pages(*node, pages, end);
  }
  touch_path(*node, end);
  return node;
}

bool PrefixTree::wants_state(const Node& node) const { return has_states_ && node.state == kNoSlot; }

void PrefixTree::put_state(Node& node, int slot) {
  ZINC_CHECK(wants_state(node));
  node.state = slot;
  pools_.states.keep(slot);
  touch(state_resource(), node);
}

void PrefixTree::drop_page(size_t group, Node& node) {
  if (node.pages[group] == kNoPage) return;
  recency_[group].erase({node.used_at[group], &node});
  pools_.pages[group].drop(node.pages[group]);
  node.pages[group] = kNoPage;
}

void PrefixTree::drop_state(Node& node) {
  if (node.state == kNoSlot) return;
  recency_[state_resource()].erase({node.used_at[state_resource()], &node});
  pools_.states.drop(node.state);
  node.state = kNoSlot;
}

void PrefixTree::remove_leaf(Node& node) {
  ZINC_CHECK(node.children.empty());
  for (size_t g = 0; g < windows_.size(); ++g) drop_page(g, node);
  drop_state(node);
  --n_nodes_;
  node.parent->children.erase(node.tokens[0]);
}

void PrefixTree::forget_if_empty(Node& node) {
  for (Node* at = &node; at->parent && at->is_empty();) {
    Node* parent = at->parent;
    remove_leaf(*at);
    at = parent;
  }
}

void PrefixTree::free_page(int group) {
  const size_t g = static_cast<size_t>(group);
  PagePool& pool = pools_.pages[g];
  const bool only_leaves = windows_[g] == 0;
  while (pool.n_free() == 0) {
    Recency& oldest_first = recency_[g];
    ZINC_CHECK(!oldest_first.empty());
    const auto is_spare = [&](const auto& entry) {
      const Node& node = *entry.second;
      return !pool.is_pinned(node.pages[g]) && (!only_leaves || node.children.empty());
    };
    // Where sequences hold pages below what nobody holds, their leaves have to go from the tree first.
    auto victim = std::ranges::find_if(oldest_first, is_spare);
    if (victim == oldest_first.end()) victim = oldest_first.begin();
    Node& node = *victim->second;
    if (only_leaves) {
      remove_leaf(node);
    } else {
      drop_page(g, node);
      forget_if_empty(node);
    }
    ++n_evicted_pages_;
  }
}

void PrefixTree::free_state() {
  Recency& oldest_first = recency_[state_resource()];
  const auto victim = std::ranges::find_if(
      oldest_first, [&](const auto& entry) { return !pools_.states.is_pinned(entry.second->state); });
  ZINC_CHECK(victim != oldest_first.end());
  Node& node = *victim->second;
  drop_state(node);
  forget_if_empty(node);
}

std::vector<PrefixRecord> PrefixTree::records() const {
  struct Open {
    const Node* node;
    int parent;
    CacheOwner owner;
  };
  std::vector<PrefixRecord> records;
  std::vector<Open> open;  // the next to be told at the back
  const auto add_children = [&](const Node& node, int index, CacheOwner owner) {
    for (const auto& [token, child] : node.children) open.push_back({child.get(), index, owner});
  };
  const auto sort_from = [&](size_t first) {
    std::sort(open.begin() + static_cast<ptrdiff_t>(first), open.end(),
              [](const Open& a, const Open& b) { return a.node->last_used() < b.node->last_used(); });
  };
  for (const auto& [owner, root] : roots_) add_children(*root, -1, owner);
  sort_from(0);
  while (!open.empty()) {
    const Open next = open.back();
    open.pop_back();
    records.push_back({next.parent, next.owner, next.node->tokens, next.node->pages, next.node->state});
    const size_t first = open.size();
    add_children(*next.node, static_cast<int>(records.size()) - 1, kEverybody);
    sort_from(first);
  }
  return records;
}

void PrefixTree::restore(std::span<const PrefixRecord> records) {
  ZINC_CHECK(n_nodes_ == 0);
  std::vector<Node*> nodes;
  for (const PrefixRecord& record : records) {
    Node& parent = record.parent < 0 ? root_of(record.owner) : *nodes[static_cast<size_t>(record.parent)];
    Node* node = add_child(parent, record.tokens);
    nodes.push_back(node);
    node->pages = record.pages;
    node->state = record.state;
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (node->pages[g] != kNoPage) pools_.pages[g].keep(node->pages[g]);
    }
    if (node->state != kNoSlot) pools_.states.keep(node->state);
  }
  for (size_t i = nodes.size(); i-- > 0;) {  // children before parents, the least recently used branch first
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (nodes[i]->pages[g] != kNoPage) touch(g, *nodes[i]);
    }
    if (nodes[i]->state != kNoSlot) touch(state_resource(), *nodes[i]);
  }
}

}  // namespace zinc
