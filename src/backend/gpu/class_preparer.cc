#include "backend/gpu/class_preparer.h"

#include <algorithm>

namespace zinc::gpu {

ClassPreparer::ClassPreparer(size_t n_classes, Prepare prepare) : prepare_(std::move(prepare)), results_(n_classes) {
  thread_ = std::thread([this] { run(); });
}

ClassPreparer::~ClassPreparer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ClassPreparer::request(size_t step_class) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(requested_, step_class) != requested_.end()) return;
  requested_.push_back(step_class);
  changed_.notify_all();
}

const Status* ClassPreparer::result(size_t step_class) const {
  const std::lock_guard lock(mutex_);
  const std::optional<Status>& result = results_[step_class];
  return result ? &*result : nullptr;
}

Status ClassPreparer::wait_for(size_t step_class) {
  request(step_class);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return results_[step_class].has_value(); });
  return *results_[step_class];
}

Status ClassPreparer::wait_for_requested() {
  std::unique_lock lock(mutex_);
  Status first_error = ok_status();
  for (size_t i = 0; i < requested_.size(); ++i) {
    const std::optional<Status>& result = results_[requested_[i]];
    changed_.wait(lock, [&] { return result.has_value(); });
    if (first_error.ok()) first_error = *result;
  }
  return first_error;
}

void ClassPreparer::run() {
  std::unique_lock lock(mutex_);
  while (n_begun_ < results_.size()) {
    changed_.wait(lock, [&] { return stopping_ || n_begun_ < requested_.size(); });
    if (stopping_) return;
    const size_t step_class = requested_[n_begun_++];
    lock.unlock();
    Status prepared = prepare_(step_class);
    lock.lock();
    results_[step_class] = std::move(prepared);
    changed_.notify_all();
  }
}

}  // namespace zinc::gpu
