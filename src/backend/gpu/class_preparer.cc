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

void ClassPreparer::prepare_next(size_t step_class) {
  const std::lock_guard lock(mutex_);
  const auto next = requested_.begin() + static_cast<ptrdiff_t>(n_begun_);
  const auto found = std::ranges::find(requested_, step_class);
  if (found == requested_.end()) {
    requested_.insert(next, step_class);
    changed_.notify_all();
  } else if (found > next) {
    std::rotate(next, found, std::next(found));
  }
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
  changed_.wait(lock,
                [&] { return std::ranges::all_of(requested_, [&](size_t c) { return results_[c].has_value(); }); });
  const auto failed = std::ranges::find_if(requested_, [&](size_t c) { return !results_[c]->ok(); });
  return failed == requested_.end() ? ok_status() : *results_[*failed];
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
