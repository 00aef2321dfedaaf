// The way into the engine thread: requests and cancellations from any thread, and the counts that decide who is
// refused. All calls are short; only wait() sleeps.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "engine/live_request.h"

namespace zinc {

class Inbox {
 public:
  explicit Inbox(int queue_limit) : queue_limit_(queue_limit) {}

  // Any thread.
  Result<RequestId> put(std::unique_ptr<LiveRequest> request);
  void cancel(RequestId id);
  void drain();
  bool drained() const;
  int n_waiting() const;
  uint64_t n_taken() const;  // requests put, in all
  uint64_t n_refused() const;

  // Engine thread.
  struct Mail {
    std::vector<std::unique_ptr<LiveRequest>> requests;
    std::vector<RequestId> cancelled;
  };
  Mail take();
  bool has_mail() const;
  void admitted();                  // a request no longer waits
  void ended(bool was_admitted);    // a request is over
  void wait(std::stop_token stop);  // until there is mail or a stop

 private:
  const int queue_limit_;
  mutable std::mutex mutex_;
  std::condition_variable_any arrived_;
  Mail mail_;
  RequestId last_id_ = 0;
  int n_waiting_ = 0, n_open_ = 0;
  uint64_t n_refused_ = 0;
  bool draining_ = false;
};

}  // namespace zinc
