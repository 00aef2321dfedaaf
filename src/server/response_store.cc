#include "server/response_store.h"

#include <algorithm>
#include <map>

namespace zinc {

void ResponseStore::put(CacheNamespace owner, KeptResponse response) {
  auto kept = std::make_shared<const KeptResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  n_bytes_ += kept->n_bytes;
  entries_.push_back({owner, now_(), std::move(kept)});
  drop_surplus();
}

std::shared_ptr<const KeptResponse> ResponseStore::find(CacheNamespace owner, std::string_view id) {
  const std::lock_guard lock(mutex_);
  drop_surplus();
  const auto found = position(owner, id);
  return found == entries_.end() ? nullptr : found->response;
}

bool ResponseStore::erase(CacheNamespace owner, std::string_view id) {
  const std::lock_guard lock(mutex_);
  drop_surplus();
  const auto found = position(owner, id);
  if (found == entries_.end()) return false;
  drop(found);
  return true;
}

std::list<ResponseStore::Entry>::iterator ResponseStore::position(CacheNamespace owner, std::string_view id) {
  return std::ranges::find_if(entries_,
                              [&](const Entry& entry) { return entry.owner == owner && entry.response->id == id; });
}

void ResponseStore::drop(std::list<Entry>::iterator entry) {
  n_bytes_ -= entry->response->n_bytes;
  entries_.erase(entry);
}

// The oldest entry of the namespace whose entries have the largest total size.
std::list<ResponseStore::Entry>::iterator ResponseStore::oldest_of_largest(size_t (*size)(const Entry& entry)) {
  std::map<CacheNamespace, size_t> totals;
  for (const Entry& entry : entries_) totals[entry.owner] += size(entry);
  const CacheNamespace largest =
      std::ranges::max_element(totals, {}, [](const auto& total) { return total.second; })->first;
  return std::ranges::find(entries_, largest, &Entry::owner);
}

void ResponseStore::drop_surplus() {
  while (!entries_.empty() && now_() - entries_.front().made > limits_.age) drop(entries_.begin());
  while (entries_.size() > static_cast<size_t>(limits_.n_responses))
    drop(oldest_of_largest([](const Entry&) { return size_t{1}; }));
  while (n_bytes_ > limits_.bytes) drop(oldest_of_largest([](const Entry& entry) { return entry.response->n_bytes; }));
}

}  // namespace zinc
