// LRU cache of the constraints of one vocabulary, keyed by their source text, so that requests with the same schema
// share cached states and masks. Any thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "constrain/constraint.h"

namespace zinc {

class ConstraintCache {
 public:
  explicit ConstraintCache(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // The constraint of `source`; on a miss it is built from the grammar that `make` returns.
  Result<std::shared_ptr<Constraint>> get(std::string_view source, const std::function<Result<Grammar>()>& make);
  std::shared_ptr<const TokenTrie> trie();  // of the vocabulary

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Constraint> constraint;
  };
  std::shared_ptr<Constraint> find(const std::string& key);

  const Tokenizer tokenizer_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::once_flag trie_once_;
  std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace zinc
