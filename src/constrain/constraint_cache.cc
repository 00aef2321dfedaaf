#include "constrain/constraint_cache.h"

#include <algorithm>

#include "base/sha256.h"

namespace zinc {
namespace {

constexpr size_t kMaxConstraints = 8;  // up to about 25 MB each

}  // namespace

std::shared_ptr<const TokenTrie> ConstraintCache::trie() {
  std::call_once(trie_once_, [&] { trie_ = std::make_shared<const TokenTrie>(tokenizer_); });
  return trie_;
}

std::shared_ptr<Constraint> ConstraintCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->constraint;
}

Result<std::shared_ptr<Constraint>> ConstraintCache::get(std::string_view source,
                                                         const std::function<Result<Grammar>()>& make) {
  const std::string key = sha256_hex(std::as_bytes(std::span(source)));
  if (std::shared_ptr<Constraint> found = find(key)) return found;
  ZINC_TRY(grammar, make());
  auto constraint = std::make_shared<Constraint>(std::move(grammar), tokenizer_, trie());
  const std::lock_guard lock(mutex_);
  entries_.push_front({key, constraint});
  if (entries_.size() > kMaxConstraints) entries_.pop_back();
  return constraint;
}

}  // namespace zinc
