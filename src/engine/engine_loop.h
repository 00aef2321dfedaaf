// The engine thread's side of the engine: takes mail, admits, runs steps, hands out tokens. Engine thread only, but for
// stats().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "engine/engine_stats.h"
#include "engine/inbox.h"
#include "engine/scheduler.h"
#include "engine/step_arrays.h"

namespace zinc {

// A plan and the largest step it takes.
struct StepPlan {
  int max_tokens = 0;
  std::unique_ptr<Plan> plan;
};

struct LoopOptions {
  int max_sequences = 1;
  int state_interval = 2048;
  int embedding_dim = 0;
  SchedulerLimits scheduler;
};

class EngineLoop {
 public:
  // Plans: ascending by max_tokens; the last takes every step there can be.
  EngineLoop(Inbox& inbox, std::unique_ptr<KvCache> cache, std::vector<StepPlan> plans, const LoopOptions& options);
  ~EngineLoop();  // ends what is left as cancelled

  bool step();                // false: there was nothing to do
  EngineStats stats() const;  // any thread: as of the last step
  KvCache& cache() { return *cache_; }

 private:
  void take_mail();
  void admit_waiting();
  bool shares_unread_prompt(const LiveRequest& request) const;
  bool admit(LiveRequest& request);
  void run(std::span<const ScheduledRun> runs);
  Result<StepOutput> compute(std::span<const ScheduledRun> runs);
  void take_hidden(LiveRequest& request, std::span<const float> rows);
  void take_logits(LiveRequest& request, std::span<float> logits);
  void count_token(LiveRequest& request);
  void remember_if_due(LiveRequest& request);
  void end(LiveRequest& request, StopReason reason, std::optional<Error> error = {});
  void count_end(const LiveRequest& request, const Outcome& outcome);
  void publish();

  Inbox& inbox_;
  LoopOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::vector<StepPlan> plans_;
  bool needs_checkpoints_;  // some layers cannot go back to any position
  Scheduler scheduler_;
  StepArrays arrays_;
  Sampler sampler_;
  std::map<RequestId, std::unique_ptr<LiveRequest>> requests_;

  EngineStats counted_;
  mutable std::mutex stats_mutex_;
  EngineStats published_;
};

}  // namespace zinc
