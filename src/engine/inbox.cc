#include "engine/inbox.h"

#include <utility>

namespace zinc {

Result<RequestId> Inbox::put(std::unique_ptr<LiveRequest> request) {
  const std::lock_guard lock(mutex_);
  if (draining_ || n_waiting_ >= queue_limit_) {
    ++n_refused_;
    if (draining_) return fail(ErrorCode::unavailable, "the engine is shutting down and takes no more requests");
    return fail(ErrorCode::unavailable, "the queue is full: {} requests wait, and no more may; try again later",
                n_waiting_);
  }
  request->id = ++last_id_;
  mail_.requests.push_back(std::move(request));
  ++n_waiting_;
  ++n_open_;
  arrived_.notify_one();
  return last_id_;
}

void Inbox::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  mail_.cancelled.push_back(id);
  arrived_.notify_one();
}

void Inbox::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  arrived_.notify_one();
}

bool Inbox::drained() const {
  const std::lock_guard lock(mutex_);
  return draining_ && n_open_ == 0;
}

int Inbox::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return n_waiting_;
}

uint64_t Inbox::n_taken() const {
  const std::lock_guard lock(mutex_);
  return last_id_;
}

uint64_t Inbox::n_refused() const {
  const std::lock_guard lock(mutex_);
  return n_refused_;
}

Inbox::Mail Inbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(mail_, {});
}

bool Inbox::has_mail() const {
  const std::lock_guard lock(mutex_);
  return !mail_.requests.empty() || !mail_.cancelled.empty();
}

void Inbox::admitted() {
  const std::lock_guard lock(mutex_);
  --n_waiting_;
}

void Inbox::ended(bool was_admitted) {
  const std::lock_guard lock(mutex_);
  --n_open_;
  if (!was_admitted) --n_waiting_;
}

void Inbox::wait(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, stop, [&] { return !mail_.requests.empty() || !mail_.cancelled.empty(); });
}

}  // namespace zinc
