// Chooses what the next step runs: a row for every request that is being answered, then as many prompt tokens as the
// pace allows, shared equally among clients. Requests wait, are read, are answered, are gone; which of those waiting
// comes first depends on how much its client has had. Plain data: no device, no clock, no memory; engine thread only.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/step_pacer.h"

namespace zinc {

struct SchedulerLimits {
  int step_tokens = 512;     // prompt tokens per step
  double longest_gap = 1.8;  // as StepPacer's
};

// One request's part of a step.
struct ScheduledRun {
  RequestId id = 0;
  int begin = 0, n_tokens = 0;
  bool ends_prompt = false;  // or is behind it: a token comes out
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits), pacer_(limits.step_tokens, limits.longest_gap) {}

  void wait(RequestId id, const std::string& client);
  std::vector<RequestId> waiting_in_turn() const;
  // `stops`: ascending positions where a run of the prompt has to end. REQUIRES: waiting, n_cached < n_prompt.
  void admit(RequestId id, int n_prompt, int n_cached, std::vector<int> stops);
  void remove(RequestId id);  // whatever it is doing; nothing if it is not there

  // The next step, answers first; empty: nothing to do. Stays until the next call.
  std::span<const ScheduledRun> next();
  void finish(double seconds);  // the step ran; requests removed meanwhile are left out

  int n_waiting() const;
  int n_running() const { return static_cast<int>(running_.size()); }
  int n_prefilling() const;
  int n_decoding() const { return n_running() - n_prefilling(); }

 private:
  struct Running {
    RequestId id;
    std::string client;
    int n_prompt, n_fed;
    std::vector<int> stops;

    bool reads_prompt() const { return n_fed < n_prompt; }
    int n_until_stop() const;
  };
  struct Client {
    double n_served = 0;  // tokens computed for it, beyond what all others have had
    std::deque<RequestId> waiting;
    int n_running = 0;
    int n_overtaken = 0;  // how many came later than its first that waits, and were admitted before it
  };
  std::vector<int> share(std::span<Running* const> readers, int n_tokens) const;
  void count_overtaken(RequestId by);
  void forget_if_idle(const std::string& client);

  SchedulerLimits limits_;
  StepPacer pacer_;
  std::map<std::string, Client> clients_;
  std::deque<Running> running_;      // in order of admission
  bool last_was_overtaken_ = false;  // whom it was the turn of
  std::vector<ScheduledRun> step_;
};

}  // namespace zinc
