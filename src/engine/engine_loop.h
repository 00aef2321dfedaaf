// The engine thread's side of the engine: takes mail, admits, runs steps, hands out tokens. Engine thread only, but for
// stats(). Where the device chooses every token of a step and nobody waits, the next step is started before this one
// has ended, with the tokens on the device. A request that ends meanwhile, or is cancelled, is over at once; what it
// holds is kept until that step is done, which has then fed its last token too.
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
  int n_vocab = 0;
  bool draws_tokens = false;  // the backend does
  SchedulerLimits scheduler;
};

class EngineLoop {
 public:
  // Plans: ascending by max_tokens; the last takes every step there can be.
  EngineLoop(Inbox& inbox, std::unique_ptr<KvCache> cache, std::vector<StepPlan> plans, const LoopOptions& options);
  ~EngineLoop();  // lets the step finish that is under way, ends what is left as cancelled

  bool step();                // false: there was nothing to do
  void finish_step();         // at the end: waits for the one that is under way
  EngineStats stats() const;  // any thread: as of the last step
  KvCache& cache() { return *cache_; }

 private:
  void take_mail();
  void admit_waiting();
  bool shares_unread_prompt(const LiveRequest& request) const;
  bool admit(LiveRequest& request);
  // A step on the device.
  struct Flight {
    explicit Flight(size_t n_groups) : arrays(n_groups) {}
    StepArrays arrays;
    std::vector<ScheduledRun> runs;
    Plan* plan = nullptr;  // nullptr: not under way
    Clock::time_point started;
  };
  enum class Tokens { known, on_device };
  // What a request held that is over, while a step is under way that has a row of it.
  struct Leaving {
    SequenceCache cache;
    std::vector<TokenId> fed;  // once that step is done; empty: nothing of it is remembered
  };

  void run(std::span<const ScheduledRun> runs);
  void start(Flight& flight, std::span<const ScheduledRun> runs, Tokens tokens);
  bool goes_on_alike(std::span<const ScheduledRun> runs) const;  // so that the next step can be started
  void start_ahead();
  void take_output(const Flight& done, const Result<StepOutput>& output);
  void take_row(LiveRequest& request, TokenId sampled, std::span<float> logits);
  void take_hidden(LiveRequest& request, std::span<const float> rows);
  bool is_drawn(const LiveRequest& request) const;  // by the device, so that no logits leave it
  void take_logits(LiveRequest& request, std::span<float> logits);
  void take_drawn(LiveRequest& request, TokenId id);
  void take_step(LiveRequest& request, const Answer::Step& step);
  void count_token(LiveRequest& request);
  bool is_due(const LiveRequest& request, int n) const;
  void remember_if_due(LiveRequest& request);
  bool is_under_way(RequestId id) const;  // in the step that is
  void end(LiveRequest& request, StopReason reason, std::optional<Error> error = {});
  void give_back(LiveRequest& request, StopReason reason);
  void leave(Leaving leaving, bool step_failed);
  void count_end(const LiveRequest& request, const Outcome& outcome);
  void publish();

  Inbox& inbox_;
  LoopOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::vector<StepPlan> plans_;
  bool needs_checkpoints_;  // some layers cannot go back to any position
  Scheduler scheduler_;
  Flight now_, ahead_;  // the step that is waited for next; the one after it, or the one that was done last
  Clock::time_point last_done_;
  Sampler sampler_;
  std::map<RequestId, std::unique_ptr<LiveRequest>> requests_;
  std::map<RequestId, Leaving> leaving_;

  EngineStats counted_;
  mutable std::mutex stats_mutex_;
  EngineStats published_;
};

}  // namespace zinc
