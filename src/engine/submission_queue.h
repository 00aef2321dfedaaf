// Submission queue of the engine thread: requests and cancellations from any thread, and the counts for admission
// limits. All calls are short; only wait() blocks.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/request_state.h"

namespace zinc {

class SubmissionQueue {
 public:
  // queue_limit: waiting requests beyond the n_running that can start at once; one client may hold three quarters of
  // it.
  SubmissionQueue(int queue_limit, int n_running) : queue_limit_(queue_limit), n_running_(n_running) {}

  // Any thread.
  Result<RequestId> put(std::unique_ptr<RequestState> request);
  void cancel(RequestId id);
  void drain();
  bool drained() const;
  int n_waiting() const;
  uint64_t n_accepted() const;  // requests accepted in total
  uint64_t n_rejected() const;

  // Engine thread.
  struct Submissions {
    std::vector<std::unique_ptr<RequestState>> requests;
    std::vector<RequestId> cancelled;
  };
  Submissions take_all();
  bool has_submissions() const;
  void on_admitted(const RequestState& request);  // the request left the queue
  // The request waits again. It takes no space from others: its sequence slot is free, and they may wait for that.
  void on_preempted(const RequestState& request);
  void on_ended(const RequestState& request);  // waiting or running before
  void wait(std::stop_token stop);             // until there are submissions or a stop

 private:
  std::string rejection_reason(const std::string& client) const;
  void remove_waiting(const std::string& client);

  const int queue_limit_, n_running_;
  mutable std::mutex mutex_;
  std::condition_variable_any arrived_;
  Submissions submissions_;
  RequestId last_id_ = 0;
  int n_waiting_ = 0, n_open_ = 0;
  std::map<std::string, int> n_waiting_of_;  // per client
  uint64_t n_rejected_ = 0;
  bool draining_ = false;
};

}  // namespace zinc
