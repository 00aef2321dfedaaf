// The way into the engine thread: requests and cancellations from any thread, and the counts that decide who is
// refused. All calls are short; only wait() sleeps.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/live_request.h"

namespace zinc {

class Inbox {
 public:
  // queue_limit: requests that wait beside those that n_running could take at once; one client's at most three of four.
  Inbox(int queue_limit, int n_running) : queue_limit_(queue_limit), n_running_(n_running) {}

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
  void admitted(const LiveRequest& request);  // it no longer waits
  void ended(const LiveRequest& request);     // it is over
  void wait(std::stop_token stop);            // until there is mail or a stop

 private:
  std::string reason_to_refuse(const std::string& client) const;
  void no_longer_waits(const std::string& client);

  const int queue_limit_, n_running_;
  mutable std::mutex mutex_;
  std::condition_variable_any arrived_;
  Mail mail_;
  RequestId last_id_ = 0;
  int n_waiting_ = 0, n_open_ = 0;
  std::map<std::string, int> n_waiting_of_;  // per client
  uint64_t n_refused_ = 0;
  bool draining_ = false;
};

}  // namespace zinc
