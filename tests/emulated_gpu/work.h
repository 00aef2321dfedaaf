// What the device was told and has not done yet. It does it when the host waits for it and no sooner, so that a host
// that reads too early reads what was there before, and one that writes too early to what is still to be copied has
// that copied instead. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace zinc::emulated {

class Work {
 public:
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    to_do_.push_back(std::move(work));
  }
  size_t n_added() {
    const std::lock_guard lock(mutex_);
    return n_done_ + to_do_.size();
  }
  void wait_for_first(size_t n) {
    const std::lock_guard lock(mutex_);
    for (; n_done_ < n; ++n_done_) {
      to_do_.front()();
      to_do_.pop_front();
    }
  }
  void wait() { wait_for_first(n_added()); }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> to_do_;
  size_t n_done_ = 0;
};

}  // namespace zinc::emulated
