#include "engine/submission_queue.h"

#include <algorithm>
#include <utility>

namespace zinc {

// Requests for which a sequence slot is free do not count as waiting: the engine thread admits them in its next step.
std::string SubmissionQueue::rejection_reason(const std::string& client) const {
  if (draining_) return "the server is shutting down; retry later";
  const int n_free_slots = std::max(0, n_running_ - (n_open_ - n_waiting_));
  if (n_waiting_ >= queue_limit_ + n_free_slots) {
    return fmt::format("the queue is full: {} requests are waiting; try again later", n_waiting_);
  }
  const int client_limit = std::max(1, queue_limit_ - queue_limit_ / 4) + n_free_slots;
  const auto own = n_waiting_of_.find(client);
  if (own == n_waiting_of_.end() || own->second < client_limit) return "";
  return fmt::format("{} of your requests are waiting, the limit for one client; try again later", own->second);
}

Result<RequestId> SubmissionQueue::put(std::unique_ptr<RequestState> request) {
  const std::lock_guard lock(mutex_);
  const std::string& client = request->request.client;
  if (const std::string reason = rejection_reason(client); !reason.empty()) {
    ++n_rejected_;
    return fail(ErrorCode::unavailable, "{}", reason);
  }
  ++n_waiting_of_[client];
  request->id = ++last_id_;
  submissions_.requests.push_back(std::move(request));
  ++n_waiting_;
  ++n_open_;
  arrived_.notify_one();
  return last_id_;
}

void SubmissionQueue::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  submissions_.cancelled.push_back(id);
  arrived_.notify_one();
}

void SubmissionQueue::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  arrived_.notify_one();
}

bool SubmissionQueue::drained() const {
  const std::lock_guard lock(mutex_);
  return draining_ && n_open_ == 0;
}

int SubmissionQueue::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return n_waiting_;
}

uint64_t SubmissionQueue::n_accepted() const {
  const std::lock_guard lock(mutex_);
  return last_id_;
}

uint64_t SubmissionQueue::n_rejected() const {
  const std::lock_guard lock(mutex_);
  return n_rejected_;
}

SubmissionQueue::Submissions SubmissionQueue::take_all() {
  const std::lock_guard lock(mutex_);
  return std::exchange(submissions_, {});
}

bool SubmissionQueue::has_submissions() const {
  const std::lock_guard lock(mutex_);
  return !submissions_.requests.empty() || !submissions_.cancelled.empty();
}

void SubmissionQueue::remove_waiting(const std::string& client) {
  --n_waiting_;
  const auto own = n_waiting_of_.find(client);
  if (--own->second == 0) n_waiting_of_.erase(own);
}

void SubmissionQueue::on_admitted(const RequestState& request) {
  const std::lock_guard lock(mutex_);
  remove_waiting(request.request.client);
}

void SubmissionQueue::on_preempted(const RequestState& request) {
  const std::lock_guard lock(mutex_);
  ++n_waiting_;
  ++n_waiting_of_[request.request.client];
}

void SubmissionQueue::on_ended(const RequestState& request) {
  const std::lock_guard lock(mutex_);
  --n_open_;
  if (!request.is_running) remove_waiting(request.request.client);
}

void SubmissionQueue::wait(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, stop, [&] { return !submissions_.requests.empty() || !submissions_.cancelled.empty(); });
}

}  // namespace zinc
