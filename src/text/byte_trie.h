// A trie of byte strings. Built once, then read by any thread. Used to match special tokens in text and, with failure
// links (Aho-Corasick), stop strings in a stream.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace zinc {

class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  // The node of `text`; creates missing nodes.
  int32_t add(std::string_view text) {
    int32_t node = kRoot;
    for (const char byte : text) {
      const int32_t next = child(node, byte);
      node = next == kNone ? add_child(node, byte) : next;
    }
    return node;
  }

  int32_t child(int32_t node, char byte) const {  // kNone: no such child
    int32_t at = nodes_[static_cast<size_t>(node)].first_child;
    while (at != kNone && nodes_[static_cast<size_t>(at)].byte != byte)
      at = nodes_[static_cast<size_t>(at)].next_sibling;
    return at;
  }

  // Visits the children of a node: visit(child, byte).
  template <class Visit>
  void for_each_child(int32_t node, Visit visit) const {
    for (int32_t at = nodes_[static_cast<size_t>(node)].first_child; at != kNone;
         at = nodes_[static_cast<size_t>(at)].next_sibling) {
      visit(at, nodes_[static_cast<size_t>(at)].byte);
    }
  }

  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    int32_t first_child = kNone, next_sibling = kNone;
    char byte = 0;
  };

  int32_t add_child(int32_t parent, char byte) {
    const auto node = static_cast<int32_t>(nodes_.size());
    nodes_.push_back({kNone, nodes_[static_cast<size_t>(parent)].first_child, byte});
    nodes_[static_cast<size_t>(parent)].first_child = node;
    return node;
  }

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace zinc
