#include "engine/engine_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/checkpoints.h"

namespace zinc {
namespace {

// A request waits for another one's prefill if that saves at least kMinSharedTokens tokens, and the other one has at
// most kMaxWaitPerSharedToken tokens to compute per saved token.
constexpr int kMinSharedTokens = 16;
constexpr int kMaxWaitPerSharedToken = 4;
// Tokens per insertion into the prefix cache, for models that can resume at any position.
constexpr int kInsertIntervalTokens = 256;
constexpr std::array<TokenId, 1> kTokenFromDevice = {kFromDevice};
// Steps with more prompt tokens are not pipelined: the host's work is short compared to them, and requests that arrive
// meanwhile would wait for the next step too.
constexpr int kMaxPipelinedPrefill = 256;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
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
                       const LoopOptions& options)
    : submission_queue_(submission_queue),
      options_(options),
      cache_(std::move(cache)),
      plan_(std::move(plan)),
      needs_checkpoints_(cache_->has_states() || std::ranges::any_of(cache_->windows(), [](int w) { return w > 0; })),
      scheduler_(options.scheduler),
      current_(cache_->windows().size()),
      next_(cache_->windows().size()) {
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
  const auto is_full = [&] { return scheduler_.n_running() == options_.max_sequences; };
  if (scheduler_.n_waiting() == 0 || is_full()) return;
  for (const RequestId id : scheduler_.admission_order()) {
    if (is_full()) return;
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

// The watermark is one page per sequence: after an admission all of them can grow by a page before one is preempted.
// Without it the prefill of a request is often wasted, because an older one needs its pages a few steps later.
bool EngineLoop::admit(RequestState& request) {
  if (request.admission_failed_at == cache_->version()) return false;  // nothing was freed since
  const std::span<const TokenId> tokens = request.output.tokens();
  const int n_tokens = static_cast<int>(tokens.size());
  const bool needs_all = request.needs_whole_prompt();
  const int watermark = scheduler_.n_running() > 0 ? scheduler_.n_running() + 1 : 0;
  std::optional<Admission> admission =
      cache_->admit(tokens, needs_all ? 0 : n_tokens - 1, request.request.cache_namespace, watermark);
  if (!admission) {
    request.admission_failed_at = cache_->version();
    return false;
  }
  request.cache = std::move(admission->sequence);
  request.cache.cache_share = request.request.cache_share;
  request.is_running = true;
  request.prefill_size = n_tokens;
  request.n_cached_prefix = needs_all ? std::min(admission->n_common, n_tokens) : request.cache.n_tokens;
  if (needs_checkpoints_) {
    request.checkpoints =
        choose_checkpoints(n_tokens, request.cache.n_tokens, request.request.boundaries, options_.checkpoint_interval);
  }
  scheduler_.admit(request.id, n_tokens, request.cache.n_tokens, request.checkpoints,
                   request.scores_prompt() ? PromptOutput::all_tokens : PromptOutput::last_token, request.max_length);
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
  return sequences;
}

bool EngineLoop::allocate_pages(std::span<const ScheduledSequence> sequences) {
  return std::ranges::all_of(sequences, [&](const ScheduledSequence& entry) {
    return cache_->grow(requests_.at(entry.id)->cache, entry.begin + entry.n_tokens);
  });
}

// Its tokens stay in the prefix cache until others need the pages: then they are computed again when it is resumed.
// Outputs that need the whole prompt start again with it.
void EngineLoop::preempt_youngest() {
  RequestState& request = *requests_.at(scheduler_.preempt_youngest());
  const std::span<const TokenId> fed = request.fed();
  cache_->finish(std::move(request.cache), fed);
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
  step.arrays.add(request.cache, entry.begin,
                  begin < known.size() ? known.subspan(begin, n_tokens) : std::span(kTokenFromDevice));
  if (entry.begin < request.prefill_size) step.n_prefill += entry.n_tokens;
  OutputRows rows;
  if (request.request.embedding) {
    step.arrays.request_hidden();
  } else if (entry.samples_token && is_sampled_on_device(request)) {
    step.arrays.request_sampled_token(*request.output.device_sampling(begin + n_tokens));
    rows = {.n_rows = 1};
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

// Not if a checkpoint is due after this step: its state would be one step ahead, its window's pages released.
bool EngineLoop::can_pipeline_next_step() const {
  if (current_.n_prefill > kMaxPipelinedPrefill) return false;
  return std::ranges::all_of(current_.sequences, [&](const ScheduledSequence& entry) {
    const auto found = requests_.find(entry.id);
    if (found == requests_.end()) return true;  // it has ended
    const RequestState& request = *found->second;
    return !request.request.embedding && (!entry.samples_token || is_sampled_on_device(request)) &&
           !(needs_checkpoints_ && should_insert_prefix(request, entry.begin + entry.n_tokens));
  });
}

// Whether the cache takes both steps in flight: a sequence has the tokens of one step in addition to the known ones.
// A step whose prompts wait for the time of a decode-only step is not started early either: this one may be it.
bool EngineLoop::fits_in_flight(std::span<const ScheduledSequence> next) const {
  bool has_prompt = false;
  for (const ScheduledSequence& entry : next) {
    const RequestState& request = *requests_.at(entry.id);
    if (entry.begin + entry.n_tokens - request.cache.n_tokens > options_.scheduler.step_tokens) return false;
    has_prompt = has_prompt || entry.begin < request.prefill_size;
  }
  return has_prompt || scheduler_.n_prefilling() == 0;
}

// Not if its pages have run out.
void EngineLoop::try_start_next_step() {
  admit_waiting();
  const std::span<const ScheduledSequence> next = scheduler_.schedule_step();
  if (!next.empty() && fits_in_flight(next) && allocate_pages(next)) start(next_, next);
}

void EngineLoop::complete_current_step() {
  const Clock::time_point waited = options_.trace ? Clock::now() : Clock::time_point();
  const Result<StepOutput> output = plan_->wait();
  const Clock::time_point done = Clock::now();
  // A pipelined step starts after the one before it has ended.
  const Clock::time_point begin = std::max(current_.started, last_done_);
  const double seconds = seconds_between(begin, done);
  if (options_.trace && output.ok()) trace_step(current_, begin, waited, done);
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

void EngineLoop::apply_output(const InFlightStep& done, const Result<StepOutput>& output) {
  const StepOutput out = output.ok() ? output.value() : StepOutput{};
  const size_t hidden_dim = out.hidden.size() / static_cast<size_t>(done.arrays.n_tokens());
  size_t rows_at = 0, logits_at = 0, hidden_at = 0;
  std::vector<SampledRow> constrained;  // after the other rows, which do not wait for masks
  if (!output.ok()) mask_worker_.wait();
  for (size_t i = 0; i < done.sequences.size(); ++i) {
    const ScheduledSequence& entry = done.sequences[i];
    if (!output.ok()) {
      if (auto released = deferred_releases_.extract(entry.id)) {
        cache_->release(std::move(released.mapped().cache));
      } else {
        end(*requests_.at(entry.id), StopReason::failed, output.error());
      }
      continue;
    }
    const size_t n_rows = static_cast<size_t>(done.rows[i].n_rows);
    const size_t n_logits = done.rows[i].has_logits ? static_cast<size_t>(options_.n_vocab) : 0;
    const size_t n_hidden = hidden_dim * static_cast<size_t>(entry.n_tokens);
    const std::span<const TokenId> sampled = out.sampled.subspan(rows_at, n_rows);
    const std::span<float> logits = out.logits.subspan(logits_at, n_rows * n_logits);
    const std::span<const float> hidden = out.hidden.subspan(hidden_at, n_hidden);
    rows_at += n_rows;
    logits_at += logits.size();
    hidden_at += n_hidden;
    if (auto released = deferred_releases_.extract(entry.id)) {
      release_deferred(std::move(released.mapped()));
      continue;
    }
    RequestState& request = *requests_.at(entry.id);
    const bool was_prompt = request.is_prefilling();
    request.cache.n_tokens += entry.n_tokens;
    if (!entry.samples_token) insert_prefix_if_due(request);
    if (was_prompt) {
      stats_.n_prefilled_tokens += static_cast<uint64_t>(entry.n_tokens);
      report_progress(request);
    }
    if (request.request.embedding) {
      accumulate_embedding(request, hidden);
      continue;
    }
    if (request.scores_prompt()) score_prompt(request, entry, logits);
    if (entry.samples_token) {
      const SampledRow row{&request, sampled.back(), logits.last(n_logits)};
      if (request.output.is_constrained()) {
        constrained.push_back(row);
      } else {
        apply_output_row(row);
      }
    }
  }
  if (!constrained.empty()) mask_worker_.wait();
  for (const SampledRow& row : constrained) apply_output_row(row);
  cache_->prefault_pages(done.arrays.n_tokens());
}

// Not again for tokens that are computed again after a preemption.
void EngineLoop::report_progress(RequestState& request) {
  const int n_done = std::min(request.cache.n_tokens, request.prompt_size);
  if (n_done <= request.n_progress) return;
  request.n_progress = n_done;
  request.request.sink->progress({n_done, request.prompt_size, request.usage.n_cached});
}

int EngineLoop::n_output_rows(const RequestState& request, const ScheduledSequence& entry) {
  if (request.scores_prompt()) return entry.n_tokens;
  return entry.samples_token ? 1 : 0;
}

// The logits after a token are the next token's.
void EngineLoop::score_prompt(RequestState& request, const ScheduledSequence& entry, std::span<float> logits) {
  const std::span<const TokenId> tokens = request.output.tokens();
  std::vector<OutputToken>& scored = request.prompt_tokens;
  if (scored.empty()) scored.push_back({.id = tokens.front(), .logprob = std::numeric_limits<float>::quiet_NaN()});
  Logprobs logprobs;
  const size_t n_vocab = static_cast<size_t>(options_.n_vocab);
  for (int i = 0; i < entry.n_tokens && entry.begin + i + 1 < request.prompt_size; ++i) {
    const TokenId next = tokens[static_cast<size_t>(entry.begin + i + 1)];
    sampler_.logprobs(logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab), next,
                      request.output.n_prompt_logprobs(), logprobs);
    scored.push_back({.id = next, .logprob = logprobs.chosen, .top = logprobs.top});
  }
}

// For greedy sampling the device has already found the most likely token, unless the logits are not finite.
void EngineLoop::apply_output_row(const SampledRow& row) {
  RequestState& request = *row.request;
  const RequestId id = request.id;
  if (request.output.is_prompt_only()) return end(request, StopReason::max_tokens);
  const std::optional<DeviceSampling> sampling = request.output.device_sampling(0);
  const bool is_greedy = sampling && sampling->temperature <= kGreedyTemperature && row.sampled >= 0;
  if (is_sampled_on_device(request) || (is_greedy && std::isfinite(row.logits[static_cast<size_t>(row.sampled)]))) {
    accept_sampled(request, row.sampled);
  } else {
    sample_on_host(request, row.logits);
  }
  if (requests_.contains(id)) insert_prefix_if_due(request);  // after sampling: a failed request is not inserted
}

bool EngineLoop::is_sampled_on_device(const RequestState& request) const {
  return options_.can_sample_on_device && request.output.device_sampling(0).has_value();
}

// Whether a request with n fed tokens is inserted into the prefix cache.
bool EngineLoop::should_insert_prefix(const RequestState& request, int n) const {
  if (!needs_checkpoints_) return n == request.prefill_size || n - request.n_cached_prefix >= kInsertIntervalTokens;
  return std::ranges::binary_search(request.checkpoints, n) || n % options_.checkpoint_interval == 0;
}

// Inserted during prefill, so that other requests can share the prefix early and the pages count as recently used.
void EngineLoop::insert_prefix_if_due(RequestState& request) {
  if (!should_insert_prefix(request, request.cache.n_tokens)) return;
  cache_->insert_prefix(request.cache, request.fed());
  request.n_cached_prefix = request.cache.n_tokens;
}

void EngineLoop::accumulate_embedding(RequestState& request, std::span<const float> rows) {
  const size_t dim = static_cast<size_t>(options_.embedding_dim);
  const bool is_mean = request.request.embedding == Pooling::mean;
  std::vector<float>& sum = request.embedding;
  sum.resize(dim);
  for (size_t at = is_mean ? 0 : rows.size() - dim; at < rows.size(); at += dim) {
    for (size_t i = 0; i < dim; ++i) sum[i] = (is_mean ? sum[i] : 0) + rows[at + i];
  }
  if (!request.is_prefilling()) end(request, StopReason::end_token);
}

void EngineLoop::record_token_time(RequestState& request) {
  const Clock::time_point now = Clock::now();
  if (request.first_token == Clock::time_point{}) {
    request.first_token = now;
    stats_.time_to_first_token_s.add(seconds_between(request.submitted, now));
  } else {
    stats_.inter_token_s.add(seconds_between(request.last_token, now));
  }
  request.last_token = now;
}

void EngineLoop::sample_on_host(RequestState& request, std::span<float> logits) {
  record_token_time(request);
  OutputState& output = request.output;
  const Result<OutputState::TokenResult> result =
      output.accept(logits, sampler_, request.cache.n_tokens < request.max_length);
  if (!result.ok()) return end(request, StopReason::failed, result.error());
  emit_token(request, result.value());
}

void EngineLoop::accept_sampled(RequestState& request, TokenId id) {
  record_token_time(request);
  const size_t position = static_cast<size_t>(request.cache.n_tokens);
  if (id < 0) {
    return end(request, StopReason::failed, no_finite_logit(position, static_cast<size_t>(options_.n_vocab)));
  }
  emit_token(request, request.output.accept(id, request.cache.n_tokens < request.max_length));
}

void EngineLoop::emit_token(RequestState& request, const OutputState::TokenResult& result) {
  if (result.is_output) {
    ++stats_.n_generated_tokens;
    request.request.sink->tokens(result.text, {&request.output.last(), 1});
  }
  if (result.reason == StopReason::end_token && !result.is_output) request.end_token = result.id;
  if (result.reason) end(request, *result.reason);
}

int EngineLoop::n_in_flight(RequestId id) const {
  if (!current_.is_in_flight) return 0;
  const auto found = std::ranges::find(current_.sequences, id, &ScheduledSequence::id);
  return found == current_.sequences.end() ? 0 : found->n_tokens;
}

void EngineLoop::release_cache(RequestState& request, StopReason reason) {
  if (const int n = n_in_flight(request.id); n > 0) {
    std::vector<TokenId> fed = reason == StopReason::failed ? std::vector<TokenId>{} : request.fed_with_pending(n);
    deferred_releases_.emplace(request.id, DeferredRelease{std::move(request.cache), std::move(fed)});
  } else if (reason == StopReason::failed) {
    cache_->release(std::move(request.cache));
  } else {
    const std::span<const TokenId> fed = request.fed();
    cache_->finish(std::move(request.cache), fed);
  }
}

void EngineLoop::release_deferred(DeferredRelease deferred) {
  if (deferred.fed.empty()) return cache_->release(std::move(deferred.cache));
  deferred.cache.n_tokens = static_cast<int>(deferred.fed.size());
  cache_->finish(std::move(deferred.cache), deferred.fed);
}

// The sink is called before the submission queue: when drained() is true, every sink has got its end().
void EngineLoop::end(RequestState& request, StopReason reason, std::optional<Error> error) {
  if (request.output.is_constrained()) mask_worker_.wait();  // it may be preparing the request's mask
  if (const std::string_view rest = request.output.finish(); !rest.empty()) request.request.sink->tokens(rest, {});
  const Outcome outcome = outcome_of(request, reason, std::move(error));
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
  stats_.n_states_cached = pools.states.n_cached();
  stats_.n_evicted_pages = cache_->prefix_cache().n_evicted_pages();
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
