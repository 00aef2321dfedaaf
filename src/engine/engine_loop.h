// The engine thread's part of the engine: drains the submission queue, admits requests, runs steps, emits tokens.
// Engine thread only, except stats(). If the KV pages of a step run out, the youngest requests are preempted before it
// starts. Async scheduling: if the device samples every token of a step, the next step is started before this one has
// ended, with the tokens still on the device and with the prompts of requests that are admitted meanwhile. A request
// that ends or is cancelled before then ends immediately; its pages and its state slot are released when that step is
// done. That step has then also fed its tokens. If its pages have run out, a step is not started early: no request is
// preempted with a row in flight.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "engine/engine_stats.h"
#include "engine/engine_trace.h"
#include "engine/mask_worker.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_arrays.h"
#include "engine/submission_queue.h"

namespace zinc {

struct LoopOptions {
  int max_sequences = 1;
  int checkpoint_interval = 2048;
  int embedding_dim = 0;
  int n_vocab = 0;
  bool can_sample_on_device = false;        // as BackendInfo says
  SchedulerLimits scheduler;                // without max_sequences
  std::shared_ptr<EngineTrace> trace = {};  // nullptr: off
};

class EngineLoop {
 public:
  // The plan must fit the largest possible step. speculation: nullptr is off.
  EngineLoop(SubmissionQueue& submission_queue, std::unique_ptr<KvCache> cache, std::unique_ptr<Plan> plan,
             const LoopOptions& options, std::unique_ptr<Speculation> speculation = nullptr);
  ~EngineLoop();  // waits for the step in flight, ends the remaining requests as cancelled

  bool step();                // false: nothing to do
  void finish_step();         // at shutdown: waits for the step in flight
  EngineStats stats() const;  // any thread: as of the last step
  KvCache& cache() { return *cache_; }
  Status wait_until_prepared() { return plan_->wait_until_prepared(); }

 private:
  void drain_submissions();
  void admit_waiting();
  bool shares_prefix_in_prefill(const RequestState& request) const;
  int scan_chunks_end(const RequestState& request) const;
  PromptSplit split_prompt(const RequestState& request) const;
  bool admit(RequestState& request);
  void record_admission(RequestState& request, const Admission& admission);
  std::span<const ScheduledSequence> schedule_step();
  bool allocate_pages(std::span<const ScheduledSequence> sequences);
  void preempt_youngest();
  DraftQuery draft_query(const RequestState& request) const;
  void add_drafts();
  struct OutputRows {
    int n_rows = 0;
    bool has_logits = false;  // else sampled tokens only
  };
  // A step that runs on the device.
  struct InFlightStep {
    explicit InFlightStep(size_t n_groups) : arrays(n_groups) {}
    StepArrays arrays;
    std::vector<ScheduledSequence> sequences;
    std::vector<OutputRows> rows;  // per sequence
    int n_prefill = 0;             // prompt tokens
    bool is_in_flight = false;
    Clock::time_point started;
    uint64_t number = 0;
  };
  // The cache of a request that ended while a step with one of its rows is in flight.
  struct DeferredRelease {
    SequenceCache cache;
    std::vector<TokenId> fed;  // once that step is done; empty: do not insert into the prefix cache
  };

  void start(InFlightStep& step, std::span<const ScheduledSequence> sequences);
  void add_to_step(InFlightStep& step, const ScheduledSequence& entry);
  void start_masks(std::span<const ScheduledSequence> sequences);
  bool can_pipeline_next_step();
  bool may_draft() const;
  bool wants_draft();
  void try_start_next_step();
  void complete_current_step();
  void apply_output(const InFlightStep& done, const Result<StepOutput>& output);
  static void report_progress(RequestState& request);
  void score_prompt(RequestState& request, const ScheduledSequence& entry, std::span<float> logits);
  static int n_output_rows(const RequestState& request, const ScheduledSequence& entry);
  // The output rows of a sequence: one, or one more than it had drafted tokens in the step.
  struct SampledRows {
    RequestState* request;
    std::span<const TokenId> sampled;
    std::span<float> logits;  // [rows, n_vocab], or empty
    std::span<const float> hidden;
  };
  void apply_output_rows(const SampledRows& rows);
  Result<OutputState::TokenResult> accept_row(RequestState& request, TokenId sampled, std::span<float> logits,
                                              int n_fed);
  void keep_rows(RequestState& request, int n_rows, int n_drafted, int n_tried);
  void observe_rows(const RequestState& request, int begin, int n_rows, std::span<const float> hidden);
  void accumulate_embedding(RequestState& request, std::span<const float> rows);
  bool is_sampled_on_device(const RequestState& request) const;  // no logits are copied to the host
  void emit_token(RequestState& request, const OutputState::TokenResult& result);
  void record_token_time(RequestState& request);
  // Tokens per insertion into the prefix cache, for models that can resume at any position.
  static constexpr int kInsertIntervalTokens = 256;
  bool should_insert_prefix(const RequestState& request, int n) const;
  void insert_prefix_if_due(RequestState& request);
  int n_in_flight(RequestId id) const;  // tokens
  void end(RequestState& request, StopReason reason, std::optional<Error> error = {});
  bool can_insert_prefix(const RequestState& request, int n) const;
  void finish_cache(RequestState& request);
  void release_cache(RequestState& request, StopReason reason);
  void release_deferred(DeferredRelease deferred);
  void record_end(const RequestState& request, const Outcome& outcome);
  void publish();
  void trace_step(const InFlightStep& step, Clock::time_point begin, Clock::time_point waited, Clock::time_point done);

  SubmissionQueue& submission_queue_;
  LoopOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Plan> plan_;
  bool needs_checkpoints_;  // some layers cannot resume at any position, or prompts have scan chunks
  int scan_chunk_;          // SchedulerLimits::scan_chunk_tokens
  int tail_chunk_;          // SchedulerLimits::tail_chunk_tokens
  Scheduler scheduler_;
  InFlightStep current_, next_;  // the step to wait for, and the one after it (or the last finished one)
  Clock::time_point last_done_;
  uint64_t n_started_steps_ = 0;
  std::unique_ptr<Speculation> speculation_;
  std::vector<DraftQuery> draft_queries_;
  bool was_busy_ = false;  // the last step() had work
  Sampler sampler_;
  MaskWorker mask_worker_;
  std::map<RequestId, std::unique_ptr<RequestState>> requests_;
  // KvCache::version() when the first waiting request did not fit: the others wait for it.
  std::optional<uint64_t> admission_failed_at_;
  std::map<RequestId, DeferredRelease> deferred_releases_;

  EngineStats stats_;
  mutable std::mutex stats_mutex_;
  EngineStats published_;
};

}  // namespace zinc
