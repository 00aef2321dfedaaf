#include "server/doorbell.h"

namespace zinc {

void Doorbell::ring(std::weak_ptr<SinkOwner> owner) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(owner));
    if (waiting_.size() > 1) return;
  }
  post_([this] { wake_owners(); });
}

void Doorbell::wake_owners() {
  std::vector<std::weak_ptr<SinkOwner>> owners;
  {
    const std::lock_guard lock(mutex_);
    owners.swap(waiting_);
  }
  for (const std::weak_ptr<SinkOwner>& weak : owners) {
    if (const std::shared_ptr<SinkOwner> owner = weak.lock()) owner->sinks_have_news();
  }
}

CollectingSink::News CollectingSink::take() {
  const std::lock_guard lock(mutex_);
  rang_ = false;
  return std::exchange(news_, {});
}

void CollectingSink::progress(const PromptProgress& progress) {
  if (!wants_.progress) return;
  std::unique_lock lock(mutex_);
  news_.progress = progress;
  ring_once(std::move(lock));
}

void CollectingSink::tokens(std::string_view text, std::span<const AnswerToken> tokens) {
  std::unique_lock lock(mutex_);
  news_.text += text;
  news_.n_tokens += static_cast<int>(tokens.size());
  if (wants_.tokens) news_.tokens.insert(news_.tokens.end(), tokens.begin(), tokens.end());
  ring_once(std::move(lock));
}

void CollectingSink::end(const Outcome& outcome) {
  std::unique_lock lock(mutex_);
  news_.outcome = outcome;
  ring_once(std::move(lock));
}

void CollectingSink::ring_once(std::unique_lock<std::mutex> lock) {
  const bool first = !std::exchange(rang_, true);
  lock.unlock();
  if (first) bell_.ring(owner_);
}

}  // namespace zinc
