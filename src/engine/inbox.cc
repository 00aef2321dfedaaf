#include "engine/inbox.h"

#include <algorithm>
#include <utility>

namespace zinc {

// What nobody has looked at yet waits only in name while there are places for it.
std::string Inbox::reason_to_refuse(const std::string& client) const {
  if (draining_) return "the engine is shutting down and takes no more requests";
  const int n_places = std::max(0, n_running_ - (n_open_ - n_waiting_));
  if (n_waiting_ >= queue_limit_ + n_places) {
    return fmt::format("the queue is full: {} requests wait, and no more may; try again later", n_waiting_);
  }
  const int share = std::max(1, queue_limit_ - queue_limit_ / 4) + n_places;
  const auto own = n_waiting_of_.find(client);
  if (own == n_waiting_of_.end() || own->second < share) return "";
  return fmt::format("{} of your requests wait, and the rest of the queue is for others; try again later", own->second);
}

Result<RequestId> Inbox::put(std::unique_ptr<LiveRequest> request) {
  const std::lock_guard lock(mutex_);
  const std::string& client = request->request.client;
  if (const std::string reason = reason_to_refuse(client); !reason.empty()) {
    ++n_refused_;
    return fail(ErrorCode::unavailable, "{}", reason);
  }
  ++n_waiting_of_[client];
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

void Inbox::no_longer_waits(const std::string& client) {
  --n_waiting_;
  const auto own = n_waiting_of_.find(client);
  if (--own->second == 0) n_waiting_of_.erase(own);
}

void Inbox::admitted(const LiveRequest& request) {
  const std::lock_guard lock(mutex_);
  no_longer_waits(request.request.client);
}

void Inbox::ended(const LiveRequest& request) {
  const std::lock_guard lock(mutex_);
  --n_open_;
  if (!request.is_admitted) no_longer_waits(request.request.client);
}

void Inbox::wait(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, stop, [&] { return !mail_.requests.empty() || !mail_.cancelled.empty(); });
}

}  // namespace zinc
