#include "engine/engine_loop.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/checkpoints.h"

namespace zinc {
namespace {

// A request waits for another one's prefill if that saves at least kMinSharedTokens tokens, and the other one has at
// most kMaxWaitPerSharedToken tokens to compute per saved token.
constexpr int kMinSharedTokens = 16;
constexpr int kMaxWaitPerSharedToken = 4;
constexpr std::array<TokenId, 1> kTokenFromDevice = {kFromDevice};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

SchedulerLimits limits_of(const LoopOptions& options) {
  SchedulerLimits limits = options.scheduler;
  limits.max_sequences = options.max_sequences;
  return limits;
}

std::vector<float> normalized(std::vector<float> vector) {
  double squares = 0;
  for (const float x : vector) squares += double{x} * x;
  const double length = std::sqrt(squares);
  for (float& x : vector) x = length > 0 ? static_cast<float>(x / length) : 0.0f;
  return vector;
}

Timings timings_of(const RequestState& request) {
  const Clock::time_point now = Clock::now();
  if (!request.was_admitted()) return {.queued_s = seconds_between(request.submitted, now)};
  const bool has_token = request.first_token != Clock::time_point{};
  const Clock::time_point first = has_token ? request.first_token : now;
  return {.queued_s = seconds_between(request.submitted, request.admitted),
          .prefill_s = seconds_between(request.admitted, first),
          .decode_s = seconds_between(first, now)};
}

Outcome outcome_of(const RequestState& request, StopReason reason, std::optional<Error> error) {
  Outcome outcome{.reason = reason, .error = std::move(error), .usage = request.usage, .timings = timings_of(request)};
  outcome.usage.n_prompt = request.prompt_size;
  outcome.usage.n_completion = request.output.n_tokens();
  outcome.usage.n_reasoning = request.output.n_reasoning_tokens();
  outcome.prompt_tokens = request.prompt_tokens;
  outcome.end_token = request.output.end_token();
  if (const std::string* stop = request.output.stop_string()) outcome.stop_string = *stop;
  if (request.request.embedding && reason == StopReason::end_token) outcome.embedding = normalized(request.embedding);
  return outcome;
}

}  // namespace

EngineLoop::EngineLoop(SubmissionQueue& submission_queue, std::unique_ptr<KvCache> cache, std::unique_ptr<Plan> plan,
                       const LoopOptions& options, std::unique_ptr<Speculation> speculation)
    : submission_queue_(submission_queue),
      options_(options),
      cache_(std::move(cache)),
      plan_(std::move(plan)),
      needs_checkpoints_(cache_->has_states() || options.scheduler.scan_chunk_tokens > 1 ||
                         std::ranges::any_of(cache_->windows(), [](int w) { return w > 0; })),
      scan_chunk_(options.scheduler.scan_chunk_tokens),
      tail_chunk_(options.scheduler.tail_chunk()),
      scheduler_(limits_of(options)),
      current_(cache_->windows().size()),
      next_(cache_->windows().size()),
      speculation_(std::move(speculation)) {
  if (!speculation_)
    speculation_ = std::make_unique<Speculation>(SpeculationOptions{.mode = SpeculationMode::off}, nullptr, 0);
  publish();
}

EngineLoop::~EngineLoop() {
  finish_step();
  drain_submissions();
  while (!requests_.empty()) end(*requests_.begin()->second, StopReason::cancelled);
}

void EngineLoop::finish_step() {
  if (current_.is_in_flight) complete_current_step();
}

bool EngineLoop::step() {
  drain_submissions();
  if (!current_.is_in_flight) {
    admit_waiting();
    if (const auto sequences = schedule_step(); !sequences.empty()) start(current_, sequences);
  }
  const bool has_work = current_.is_in_flight;
  if (has_work) {
    if (can_pipeline_next_step()) try_start_next_step();
    complete_current_step();
  }
  was_busy_ = has_work;
  publish();
  if (has_work && options_.trace) options_.trace->add_stats(stats_);
  return has_work;
}

void EngineLoop::drain_submissions() {
  SubmissionQueue::Submissions submissions = submission_queue_.take_all();
  if (!submissions.requests.empty() || !submissions.cancelled.empty()) admission_failed_at_.reset();
  for (std::unique_ptr<RequestState>& request : submissions.requests) {
    scheduler_.enqueue(request->id, request->request.client);
    requests_.emplace(request->id, std::move(request));
  }
  for (const RequestId id : submissions.cancelled) {
    if (const auto found = requests_.find(id); found != requests_.end()) end(*found->second, StopReason::cancelled);
  }
}

// In the scheduler's order. A request that does not fit memory yet is not overtaken: it could starve.
void EngineLoop::admit_waiting() {
  if (scheduler_.n_waiting() == 0 || scheduler_.is_full()) return;
  for (const RequestId id : scheduler_.admission_order()) {
    if (scheduler_.is_full()) return;
    RequestState& request = *requests_.at(id);
    if (shares_prefix_in_prefill(request)) {
      if (options_.trace) options_.trace->add_deferral(id, EngineTrace::Deferral::shared_prefix);
      continue;
    }
    if (!admit(request)) {
      if (options_.trace) options_.trace->add_deferral(id, EngineTrace::Deferral::memory);
      admission_failed_at_ = cache_->version();
      return;
    }
  }
}

// Whether another request is prefilling a prefix of this prompt: this one waits, so that the prefix is computed once.
bool EngineLoop::shares_prefix_in_prefill(const RequestState& request) const {
  if (request.needs_whole_prompt()) return false;
  for (const auto& [id, other] : requests_) {
    if (!other->is_running || !other->is_prefilling() ||
        other->cache.cache_namespace != request.request.cache_namespace)
      continue;
    const std::span<const TokenId> a = request.output.tokens(), b = other->output.tokens();
    int n_common = static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
    int inserted_at = std::min(other->prefill_size, other->n_cached_prefix + kInsertIntervalTokens);
    if (needs_checkpoints_) {
      const auto next = std::ranges::upper_bound(other->checkpoints, n_common);
      inserted_at = n_common = next == other->checkpoints.begin() ? 0 : *std::prev(next);
    }
    const int n_saved = n_common - other->n_cached_prefix, n_until_inserted = inserted_at - other->cache.n_tokens;
    if (n_saved >= kMinSharedTokens && n_until_inserted <= kMaxWaitPerSharedToken * n_saved) return true;
  }
  return false;
}

// Where the scan chunks of the request's prompt end: the tokens before are processed as whole scan chunks, all others
// one by one, whatever the steps are. Prompts whose rows are all output rows have no scan chunks: a step may have too
// few output rows for one.
int EngineLoop::scan_chunks_end(const RequestState& request) const {
  const bool has_scores = request.output.n_prompt_logprobs() >= 0;  // all of them or some may be known already
  return has_scores ? 0 : request.prompt_size - request.prompt_size % scan_chunk_;
}

// The output of a resumed request is processed one by one again: what would be a scan chunk of it is cut in half.
PromptSplit EngineLoop::split_prompt(const RequestState& request) const {
  PromptSplit split{.chunk_ends = request.checkpoints};
  if (scan_chunk_ == 1) return split;
  const bool has_scores = request.output.n_prompt_logprobs() >= 0;
  split.aligned_end = request.scan_chunks_end;
  split.tail_end = has_scores ? 0 : request.prompt_size - request.prompt_size % tail_chunk_;
  for (int at = split.tail_end; at + tail_chunk_ <= request.prefill_size; at += tail_chunk_) {
    split.chunk_ends.push_back(at + tail_chunk_ / 2);
  }
  return split;
}

// The watermark is one page per sequence: after an admission all of them can grow by a page before one is preempted.
// Without it the prefill of a request is often wasted, because an older one needs its pages a few steps later.
bool EngineLoop::admit(RequestState& request) {
  if (request.admission_failed_at == cache_->version()) return false;  // nothing was freed since
  const std::span<const TokenId> tokens = request.output.tokens();
  const int n_tokens = static_cast<int>(tokens.size());
  const bool needs_all = request.needs_whole_prompt();
  const int watermark = scheduler_.n_running() > 0 ? scheduler_.n_running() + 1 : 0;
  request.scan_chunks_end = scan_chunks_end(request);
  // Another prompt may contain the output of a resumed request, in scan chunks.
  const int n_reusable = scan_chunk_ > 1 ? request.scan_chunks_end : n_tokens;
  std::optional<Admission> admission = cache_->admit(tokens, needs_all ? 0 : std::min(n_tokens - 1, n_reusable),
                                                     request.request.cache_namespace, watermark, scan_chunk_);
  if (!admission) {
    request.admission_failed_at = cache_->version();
    return false;
  }
  request.cache = std::move(admission->sequence);
  request.cache.cache_share = request.request.cache_share;
  request.cache.rope_scaling = request.rope_scaling;
  request.is_running = true;
  request.prefill_size = n_tokens;
  request.n_cached_prefix = needs_all ? std::min(admission->n_common, n_tokens) : request.cache.n_tokens;
  if (needs_checkpoints_) {
    request.checkpoints = choose_checkpoints(scan_chunk_ == 1 ? n_tokens : request.prompt_size, request.cache.n_tokens,
                                             request.request.boundaries, options_.checkpoint_interval, scan_chunk_);
    std::erase_if(request.checkpoints, [&](int offset) { return !can_insert_prefix(request, offset); });
  }
  scheduler_.admit(request.id, n_tokens, request.cache.n_tokens, split_prompt(request),
                   request.scores_prompt() ? PromptOutput::all_tokens : PromptOutput::last_token, request.max_length);
  speculation_->add(request);
  submission_queue_.on_admitted(request);
  if (!request.was_admitted()) {
    record_admission(request, *admission);
  } else if (options_.trace) {
    options_.trace->add_resumption(request);
  }
  return true;
}

void EngineLoop::record_admission(RequestState& request, const Admission& admission) {
  request.admitted = Clock::now();
  request.usage = {.n_prompt = request.prompt_size,
                   .n_cached = request.cache.n_tokens,
                   .n_common = std::min(admission.n_common, request.prompt_size),
                   .miss = admission.miss};
  if (options_.trace) options_.trace->add_admission(request);
  stats_.queue_s.add(seconds_between(request.submitted, request.admitted));
  stats_.n_prompt_tokens += static_cast<uint64_t>(request.prompt_size);
  stats_.n_cached_tokens += static_cast<uint64_t>(request.cache.n_tokens);
  ++stats_.n_lookups[static_cast<size_t>(admission.miss)];
  if (request.cache.n_tokens > 0) ++stats_.n_hits;
  request.n_progress = request.cache.n_tokens;
  request.request.sink->progress({request.cache.n_tokens, request.prompt_size, request.cache.n_tokens});
}

// The next step, with its pages. If they run out, it is scheduled again without the youngest request.
// REQUIRES: no step is in flight.
std::span<const ScheduledSequence> EngineLoop::schedule_step() {
  std::span<const ScheduledSequence> sequences = scheduler_.schedule_step();
  while (!allocate_pages(sequences)) {
    preempt_youngest();
    sequences = scheduler_.schedule_step();
  }
  add_drafts();
  return scheduler_.scheduled();
}

// How far a draft for the request may reach: not beyond its end, nor beyond a checkpoint.
DraftQuery EngineLoop::draft_query(const RequestState& request) const {
  const int n_fed = request.cache.n_tokens;
  int n_max = std::min({kMaxDraftTokens, options_.scheduler.step_tokens - 1, request.max_length - n_fed - 1});
  if (needs_checkpoints_) {
    n_max = std::min(n_max, options_.checkpoint_interval - n_fed % options_.checkpoint_interval - 1);
  }
  if (const int n_left = request.output.n_tokens_left(); n_left > 0) n_max = std::min(n_max, n_left - 1);
  return {.id = request.id,
          .tokens = request.output.tokens(),
          .cache = &request.cache,
          .max_length = request.max_length,
          .max_tokens = std::max(0, n_max)};
}

// Prompts are not delayed by drafts: a step without prompt tokens while there are prompts measures how long one takes.
bool EngineLoop::may_draft() const { return speculation_->is_on() && scheduler_.n_prefilling() == 0; }

// Adds drafted tokens to a scheduled step without prompts. A draft that the cache has no space for is left out: nothing
// is preempted for it.
void EngineLoop::add_drafts() {
  if (!may_draft()) {
    for (const ScheduledSequence& entry : scheduler_.scheduled()) {
      cache_->release_draft_slots(requests_.at(entry.id)->cache);
    }
    return;
  }
  draft_queries_.clear();
  for (const ScheduledSequence& entry : scheduler_.scheduled()) {
    draft_queries_.push_back(draft_query(*requests_.at(entry.id)));
  }
  speculation_->plan(draft_queries_, static_cast<int>(draft_queries_.size()));
  for (DraftQuery& query : draft_queries_) {
    SequenceCache& cache = requests_.at(query.id)->cache;
    while (!cache_->allocate_draft_slots(cache, query.max_tokens)) --query.max_tokens;
    if (query.max_tokens > 0 && !cache_->grow(cache, cache.n_tokens + 1 + query.max_tokens)) query.max_tokens = 0;
  }
  speculation_->draft(draft_queries_);
  for (DraftQuery& query : draft_queries_) {
    SequenceCache& cache = requests_.at(query.id)->cache;
    cache_->trim(cache, cache.n_tokens + 1 + static_cast<int>(query.draft.size()));
    if (query.draft.empty()) continue;
    scheduler_.add_draft(query.id, static_cast<int>(query.draft.size()));
    requests_.at(query.id)->draft = std::move(query.draft);
  }
}

bool EngineLoop::allocate_pages(std::span<const ScheduledSequence> sequences) {
  return std::ranges::all_of(sequences, [&](const ScheduledSequence& entry) {
    return cache_->grow(requests_.at(entry.id)->cache, entry.begin, entry.begin + entry.n_tokens);
  });
}

// Its tokens stay in the prefix cache until others need the pages: then they are computed again when it is resumed.
// Outputs that need the whole prompt start again with it.
void EngineLoop::preempt_youngest() {
  RequestState& request = *requests_.at(scheduler_.preempt_youngest());
  speculation_->flush(request.id);
  speculation_->remove(request.id);
  finish_cache(request);
  request.is_running = false;
  if (request.scores_prompt()) request.prompt_tokens.clear();
  request.embedding.clear();
  submission_queue_.on_preempted(request);
  ++stats_.n_preempted;
  if (options_.trace) options_.trace->add_preemption(request);
}

void EngineLoop::start(InFlightStep& step, std::span<const ScheduledSequence> sequences) {
  step.sequences.assign(sequences.begin(), sequences.end());
  step.rows.clear();
  step.n_prefill = 0;
  step.arrays.clear();
  for (const ScheduledSequence& entry : sequences) add_to_step(step, entry);
  step.is_in_flight = true;
  start_masks(sequences);
  scheduler_.start_step();
  step.number = ++n_started_steps_;
  if (options_.trace) options_.trace->add_decision(step.number, sequences, scheduler_);
  step.started = Clock::now();
  plan_->start(step.arrays.inputs());
  if (options_.trace) options_.trace->add_host_work("upload and launch", step.started, Clock::now());
}

// A token that is not known yet is sampled by the step in flight.
void EngineLoop::add_to_step(InFlightStep& step, const ScheduledSequence& entry) {
  const RequestState& request = *requests_.at(entry.id);
  const size_t begin = static_cast<size_t>(entry.begin), n_tokens = static_cast<size_t>(entry.n_tokens);
  const std::span<const TokenId> known = request.output.tokens();
  if (!request.draft.empty()) {
    std::vector<TokenId> tokens = {known.back()};
    tokens.insert(tokens.end(), request.draft.begin(), request.draft.end());
    step.arrays.add_verification(request.cache, entry.begin, tokens);
  } else {
    step.arrays.add(request.cache, entry.begin,
                    begin < known.size() ? known.subspan(begin, n_tokens) : std::span(kTokenFromDevice));
  }
  if (entry.begin < request.prefill_size) step.n_prefill += entry.n_tokens;
  if (request.request.embedding || speculation_->needs_hidden(request.id)) step.arrays.request_hidden();
  OutputRows rows;
  if (request.request.embedding) {
    rows = {};
  } else if (entry.samples_token && is_sampled_on_device(request)) {
    std::vector<DeviceSampling> sampling;
    for (size_t at = begin + n_tokens - request.draft.size(); at <= begin + n_tokens; ++at) {
      sampling.push_back(*request.output.device_sampling(at));
    }
    step.arrays.request_sampled_tokens(sampling);
    rows = {.n_rows = static_cast<int>(sampling.size())};
  } else {
    rows = {.n_rows = n_output_rows(request, entry), .has_logits = true};
    step.arrays.request_logits(rows.n_rows);
  }
  step.rows.push_back(rows);
}

// The mask of the next token depends on the tokens so far only, so that it is computed while the step runs.
void EngineLoop::start_masks(std::span<const ScheduledSequence> sequences) {
  std::vector<OutputState*> constrained;
  for (const ScheduledSequence& entry : sequences) {
    OutputState& output = requests_.at(entry.id)->output;
    if (entry.samples_token && output.is_constrained()) constrained.push_back(&output);
  }
  mask_worker_.start(std::move(constrained));
}

// Not if a checkpoint is due after this step: its state would be one step ahead.
bool EngineLoop::can_pipeline_next_step() {
  if (!options_.can_sample_on_device) return false;  // then the host runs the steps itself
  if (!scheduler_.may_schedule_ahead() || wants_draft()) return false;
  return std::ranges::all_of(current_.sequences, [&](const ScheduledSequence& entry) {
    const auto found = requests_.find(entry.id);
    if (found == requests_.end()) return true;  // it has ended
    const RequestState& request = *found->second;
    return !request.request.embedding && request.draft.empty() &&
           (!entry.samples_token || is_sampled_on_device(request)) &&
           !(needs_checkpoints_ && should_insert_prefix(request, entry.begin + entry.n_tokens));
  });
}

// Whether drafts are worth waiting for the tokens of the step in flight.
bool EngineLoop::wants_draft() {
  if (!may_draft() || current_.n_prefill > 0) return false;
  draft_queries_.clear();
  for (const ScheduledSequence& entry : current_.sequences) {
    if (const auto found = requests_.find(entry.id); found != requests_.end()) {
      draft_queries_.push_back(draft_query(*found->second));
    }
  }
  return speculation_->wants_draft(draft_queries_);
}

// Not if its pages have run out.
void EngineLoop::try_start_next_step() {
  admit_waiting();
  const std::span<const ScheduledSequence> next = scheduler_.schedule_ahead();
  if (!next.empty() && allocate_pages(next)) start(next_, next);
}

void EngineLoop::complete_current_step() {
  const Clock::time_point waited = options_.trace ? Clock::now() : Clock::time_point();
  const Result<StepOutput> output = plan_->wait();
  const Clock::time_point done = Clock::now();
  // A pipelined step starts after the one before it has ended.
  const Clock::time_point begin = std::max(current_.started, last_done_);
  const double seconds = seconds_between(begin, done);
  if (options_.trace && output.ok()) trace_step(current_, begin, waited, done);
  if (current_.n_prefill == 0) {
    speculation_->observe_step(current_.arrays.n_tokens(), was_busy_ ? seconds_between(last_done_, done) : seconds);
  }
  last_done_ = done;
  scheduler_.complete_step(seconds);
  ++stats_.n_steps;
  stats_.step_s.add(seconds);
  stats_.step_tokens.add(current_.arrays.n_tokens());
  current_.is_in_flight = false;
  std::swap(current_, next_);
  apply_output(next_, output);
  if (options_.trace) options_.trace->add_host_work("sampling", done, Clock::now());
}

void EngineLoop::trace_step(const InFlightStep& step, Clock::time_point begin, Clock::time_point waited,
                            Clock::time_point done) {
  options_.trace->add_host_work("wait", waited, done);
  const StepTrace::Step traced{.number = step.number, .n_tokens = step.arrays.n_tokens(), .begin = begin, .end = done};
  options_.trace->add_step(traced,
                           options_.trace->times_kernels() ? plan_->kernel_times() : std::span<const KernelTime>());
}

int EngineLoop::n_in_flight(RequestId id) const {
  if (!current_.is_in_flight) return 0;
  const auto found = std::ranges::find(current_.sequences, id, &ScheduledSequence::id);
  return found == current_.sequences.end() ? 0 : found->n_tokens;
}

// The prefix cache takes only what every prompt that starts with these tokens would compute (ADR 0042).
bool EngineLoop::can_insert_prefix(const RequestState& request, int n) const {
  return scan_chunk_ == 1 || (n <= request.scan_chunks_end && n % scan_chunk_ == 0);
}

void EngineLoop::finish_cache(RequestState& request) {
  if (!can_insert_prefix(request, request.cache.n_tokens)) request.cache.n_tokens = 0;
  const std::span<const TokenId> fed = request.fed();
  cache_->finish(std::move(request.cache), fed);
}

void EngineLoop::release_cache(RequestState& request, StopReason reason) {
  if (request.draft.empty()) cache_->release_draft_slots(request.cache);
  if (const int n = n_in_flight(request.id); n > 0) {
    const bool inserts = reason != StopReason::failed && can_insert_prefix(request, request.cache.n_tokens + n);
    std::vector<TokenId> fed = inserts ? request.fed_with_pending(n) : std::vector<TokenId>{};
    deferred_releases_.emplace(request.id, DeferredRelease{std::move(request.cache), std::move(fed)});
  } else if (reason == StopReason::failed) {
    cache_->release(std::move(request.cache));
  } else {
    finish_cache(request);
  }
}

void EngineLoop::release_deferred(DeferredRelease deferred) {
  deferred.cache.n_tokens = static_cast<int>(deferred.fed.size());
  cache_->finish(std::move(deferred.cache), deferred.fed);
}

// The sink is called before the submission queue: when drained() is true, every sink has got its end().
void EngineLoop::end(RequestState& request, StopReason reason, std::optional<Error> error) {
  if (request.output.is_constrained()) mask_worker_.wait();  // it may be preparing the request's mask
  if (const std::string_view rest = request.output.finish(); !rest.empty()) request.request.sink->tokens(rest, {});
  const Outcome outcome = outcome_of(request, reason, std::move(error));
  if (reason != StopReason::failed) speculation_->flush(request.id);
  speculation_->remove(request.id);
  if (request.is_running) release_cache(request, reason);
  scheduler_.remove(request.id);
  record_end(request, outcome);
  const std::unique_ptr<RequestState> last = std::move(requests_.extract(request.id).mapped());
  last->request.sink->end(outcome);
  submission_queue_.on_ended(*last);
}

void EngineLoop::record_end(const RequestState& request, const Outcome& outcome) {
  ++stats_.n_ended[static_cast<size_t>(outcome.reason)];
  if (options_.trace) options_.trace->add_end(request, outcome);
  if (!request.was_admitted()) return;
  const Timings& t = outcome.timings;
  stats_.prefill_s.add(t.prefill_s);
  stats_.decode_s.add(t.decode_s);
  stats_.e2e_s.add(t.queued_s + t.prefill_s + t.decode_s);
  stats_.prompt_tokens.add(outcome.usage.n_prompt);
  stats_.generated_tokens.add(outcome.usage.n_completion);
}

void EngineLoop::publish() {
  const CachePools& pools = cache_->pools();
  stats_.n_prefilling = scheduler_.n_prefilling();
  stats_.n_decoding = scheduler_.n_decoding();
  stats_.pages.clear();
  for (size_t g = 0; g < pools.pages.size(); ++g) {
    const PagePool& pool = pools.pages[g];
    stats_.pages.push_back({cache_->windows()[g], pool.n_total(), pool.n_pinned(), pool.n_cached()});
  }
  stats_.n_states = pools.states.n_total();
  stats_.n_states_in_use = pools.states.n_pinned();
  stats_.n_states_cached = pools.states.n_cached();
  stats_.n_evicted_pages = cache_->prefix_cache().n_evicted_pages();
  stats_.speculation = speculation_->stats();
  const std::lock_guard lock(stats_mutex_);
  published_ = stats_;
}

EngineStats EngineLoop::stats() const {
  EngineStats stats = [&] {
    const std::lock_guard lock(stats_mutex_);
    return published_;
  }();
  stats.n_waiting = submission_queue_.n_waiting();
  stats.n_submitted = submission_queue_.n_accepted();
  stats.n_rejected = submission_queue_.n_rejected();
  return stats;
}

}  // namespace zinc
