#include "server/event_loop_notifier.h"

namespace zinc {

void EventLoopNotifier::notify(std::weak_ptr<OutputListener> listener) {
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(listener));
    if (pending_.size() > 1) return;
  }
  post_([this] { call_listeners(); });
}

void EventLoopNotifier::call_listeners() {
  std::vector<std::weak_ptr<OutputListener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    listeners.swap(pending_);
  }
  for (const std::weak_ptr<OutputListener>& weak : listeners) {
    if (const std::shared_ptr<OutputListener> listener = weak.lock()) listener->on_output();
  }
}

BufferingSink::PendingOutput BufferingSink::drain() {
  const std::lock_guard lock(mutex_);
  was_notified_ = false;
  return std::exchange(pending_, {});
}

void BufferingSink::progress(const PromptProgress& progress) {
  if (!options_.progress) return;
  std::unique_lock lock(mutex_);
  pending_.progress = progress;
  notify_once(std::move(lock));
}

void BufferingSink::tokens(std::string_view text, std::span<const OutputToken> tokens) {
  std::unique_lock lock(mutex_);
  pending_.text += text;
  pending_.n_tokens += static_cast<int>(tokens.size());
  if (options_.tokens) pending_.tokens.insert(pending_.tokens.end(), tokens.begin(), tokens.end());
  notify_once(std::move(lock));
}

void BufferingSink::end(const Outcome& outcome) {
  std::unique_lock lock(mutex_);
  pending_.outcome = outcome;
  notify_once(std::move(lock));
}

void BufferingSink::notify_once(std::unique_lock<std::mutex> lock) {
  const bool first = !std::exchange(was_notified_, true);
  lock.unlock();
  if (first) notifier_.notify(listener_);
}

}  // namespace zinc
