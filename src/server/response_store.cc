#include "server/response_store.h"

#include <algorithm>

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
  n_bytes_ -= found->response->n_bytes;
  entries_.erase(found);
  return true;
}

std::list<ResponseStore::Entry>::iterator ResponseStore::position(CacheNamespace owner, std::string_view id) {
  return std::ranges::find_if(entries_,
                              [&](const Entry& entry) { return entry.owner == owner && entry.response->id == id; });
}

void ResponseStore::drop_oldest() {
  n_bytes_ -= entries_.front().response->n_bytes;
  entries_.pop_front();
}

void ResponseStore::drop_surplus() {
  while (!entries_.empty() && now_() - entries_.front().made > limits_.age) drop_oldest();
  while (entries_.size() > static_cast<size_t>(limits_.n_responses) || n_bytes_ > limits_.bytes) drop_oldest();
}

}  // namespace zinc
