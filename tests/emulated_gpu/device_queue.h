// Operations submitted to the device. They run only when the host waits, so a host that reads too early sees the old
// contents, and one that overwrites the source of a pending copy too early has the new contents copied. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace zinc::emulated {

class DeviceQueue {
 public:
  void add(std::function<void()> operation) {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(operation));
  }
  size_t n_added() {
    const std::lock_guard lock(mutex_);
    return n_done_ + pending_.size();
  }
  void wait_for(size_t n) {
    const std::lock_guard lock(mutex_);
    for (; n_done_ < n; ++n_done_) {
      pending_.front()();
      pending_.pop_front();
    }
  }
  void wait() { wait_for(n_added()); }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> pending_;
  size_t n_done_ = 0;
};

}  // namespace zinc::emulated
