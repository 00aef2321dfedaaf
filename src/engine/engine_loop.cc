#include "engine/engine_loop.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/checkpoints.h"

namespace zinc {
namespace {

constexpr int kWorthWaiting = 16;       // prompt tokens that another request is just computing,
constexpr int kWaitedTokens = 4;        // of each so many tokens that it has to compute until then
constexpr int kRememberedTokens = 256;  // at a time, where any position can be gone back to
constexpr std::array<TokenId, 1> kOneFromDevice = {kFromDevice};

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

Timings timings_of(const LiveRequest& request) {
  const Clock::time_point now = Clock::now();
  if (!request.is_admitted) return {.queued_s = seconds_between(request.submitted, now)};
  const bool has_token = request.first_token != Clock::time_point{};
  const Clock::time_point first = has_token ? request.first_token : now;
  return {.queued_s = seconds_between(request.submitted, request.admitted),
          .prefill_s = seconds_between(request.admitted, first),
          .decode_s = seconds_between(first, now)};
}

Outcome outcome_of(const LiveRequest& request, StopReason reason, std::optional<Error> error) {
  Outcome outcome{.reason = reason, .error = std::move(error), .usage = request.usage, .timings = timings_of(request)};
  outcome.usage.n_prompt = request.prompt_size;
  outcome.usage.n_completion = request.answer.n_tokens();
  outcome.usage.n_reasoning = request.answer.n_thought_tokens();
  if (const std::string* stop = request.answer.stop_string()) outcome.stop_string = *stop;
  if (request.request.embedding && reason == StopReason::end_token) outcome.embedding = normalized(request.embedding);
  return outcome;
}

}  // namespace

EngineLoop::EngineLoop(Inbox& inbox, std::unique_ptr<KvCache> cache, std::vector<StepPlan> plans,
                       const LoopOptions& options)
    : inbox_(inbox),
      options_(options),
      cache_(std::move(cache)),
      plans_(std::move(plans)),
      needs_checkpoints_(cache_->has_states() || std::ranges::any_of(cache_->windows(), [](int w) { return w > 0; })),
      scheduler_(options.scheduler),
      now_(cache_->windows().size()),
      ahead_(cache_->windows().size()) {
  publish();
}

EngineLoop::~EngineLoop() {
  finish_step();
  take_mail();
  while (!requests_.empty()) end(*requests_.begin()->second, StopReason::cancelled);
}

void EngineLoop::finish_step() {
  if (now_.plan) run({});
}

bool EngineLoop::step() {
  take_mail();
  if (!now_.plan) admit_waiting();
  const std::span<const ScheduledRun> runs = scheduler_.next();
  const bool has_work = now_.plan || !runs.empty();
  if (has_work) run(runs);
  publish();
  return has_work;
}

void EngineLoop::take_mail() {
  Inbox::Mail mail = inbox_.take();
  for (std::unique_ptr<LiveRequest>& request : mail.requests) {
    scheduler_.wait(request->id, request->request.client);
    requests_.emplace(request->id, std::move(request));
  }
  for (const RequestId id : mail.cancelled) {
    if (const auto found = requests_.find(id); found != requests_.end()) end(*found->second, StopReason::cancelled);
  }
}

// In turn, and nobody overtakes one that memory is missing for: it would wait for ever.
void EngineLoop::admit_waiting() {
  const auto is_full = [&] { return scheduler_.n_running() == options_.max_sequences; };
  if (scheduler_.n_waiting() == 0 || is_full()) return;
  for (const RequestId id : scheduler_.waiting_in_turn()) {
    if (is_full()) return;
    LiveRequest& request = *requests_.at(id);
    if (shares_unread_prompt(request)) continue;
    if (!admit(request)) return;
  }
}

// Whether another request is just reading what this one begins with: once it is through, nothing is read twice.
bool EngineLoop::shares_unread_prompt(const LiveRequest& request) const {
  if (request.request.embedding == Pooling::mean) return false;  // reads all of it whatever is there
  for (const auto& [id, other] : requests_) {
    if (!other->is_admitted || !other->reads_prompt() || other->cache.owner != request.request.cache_owner) continue;
    const std::span<const TokenId> a = request.answer.tokens(), b = other->answer.tokens();
    int n_common = static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
    int remembered_at = std::min(other->prompt_size, other->n_remembered + kRememberedTokens);
    if (needs_checkpoints_) {
      const auto next = std::ranges::upper_bound(other->checkpoints, n_common);
      remembered_at = n_common = next == other->checkpoints.begin() ? 0 : *std::prev(next);
    }
    const int n_saved = n_common - other->n_remembered, n_until = remembered_at - other->cache.n_tokens;
    if (n_saved >= kWorthWaiting && n_until <= kWaitedTokens * n_saved) return true;
  }
  return false;
}

bool EngineLoop::admit(LiveRequest& request) {
  if (request.refused_at == cache_->n_changes()) return false;  // nothing has come free since
  const bool needs_all = request.request.embedding == Pooling::mean;
  const int max_cached = needs_all ? 0 : request.prompt_size - 1;
  std::optional<Admission> admission =
      cache_->admit(request.answer.tokens(), request.max_length, max_cached, request.request.cache_owner);
  if (!admission) {
    request.refused_at = cache_->n_changes();
    return false;
  }
  request.cache = std::move(admission->sequence);
  request.is_admitted = true;
  request.admitted = Clock::now();
  request.usage = {.n_prompt = request.prompt_size,
                   .n_cached = request.cache.n_tokens,
                   .n_common = std::min(admission->n_common, request.prompt_size),
                   .miss = admission->miss};
  request.n_remembered = needs_all ? request.usage.n_common : request.cache.n_tokens;
  if (needs_checkpoints_) {
    request.checkpoints = choose_checkpoints(request.prompt_size, request.cache.n_tokens, request.request.boundaries,
                                             options_.state_interval);
  }
  scheduler_.admit(request.id, request.prompt_size, request.cache.n_tokens, request.checkpoints);
  inbox_.admitted(request);

  counted_.queue_s.add(seconds_between(request.submitted, request.admitted));
  counted_.n_prompt_tokens += static_cast<uint64_t>(request.prompt_size);
  counted_.n_cached_tokens += static_cast<uint64_t>(request.cache.n_tokens);
  ++counted_.n_lookups[static_cast<size_t>(admission->miss)];
  if (request.cache.n_tokens > 0) ++counted_.n_hits;
  request.request.sink->progress({request.cache.n_tokens, request.prompt_size, request.cache.n_tokens});
  return true;
}

void EngineLoop::start(Flight& flight, std::span<const ScheduledRun> runs, Tokens tokens) {
  flight.runs.assign(runs.begin(), runs.end());
  flight.arrays.clear();
  for (const ScheduledRun& run : runs) {
    LiveRequest& request = *requests_.at(run.id);
    cache_->grow(request.cache, run.begin + run.n_tokens);
    const std::span<const TokenId> known = tokens == Tokens::known
                                               ? request.answer.tokens().subspan(static_cast<size_t>(run.begin))
                                               : std::span<const TokenId>(kOneFromDevice);
    flight.arrays.add(request.cache, run.begin, known.first(static_cast<size_t>(run.n_tokens)));
    if (request.request.embedding) {
      flight.arrays.want_hidden();
    } else if (run.ends_prompt && is_drawn(request)) {
      flight.arrays.want_token(*request.answer.device_draw(static_cast<size_t>(run.begin + run.n_tokens)));
    } else if (run.ends_prompt) {
      flight.arrays.want_logits();
    }
  }
  const auto fits = [&](const StepPlan& plan) { return plan.max_tokens >= flight.arrays.n_tokens(); };
  flight.plan = std::ranges::find_if(plans_, fits)->plan.get();
  flight.started = Clock::now();
  flight.plan->start(flight.arrays.inputs());
}

// Not where a recurrent state is to be copied once this step is done: it would be a token ahead.
bool EngineLoop::goes_on_alike(std::span<const ScheduledRun> runs) const {
  if (static_cast<int>(runs.size()) != scheduler_.n_running()) return false;
  const bool may_admit =
      scheduler_.n_running() < options_.max_sequences && std::ranges::any_of(requests_, [&](const auto& entry) {
        return !entry.second->is_admitted && entry.second->refused_at != cache_->n_changes();
      });
  if (may_admit || inbox_.has_mail() || options_.scheduler.step_tokens < 2) return false;
  return std::ranges::all_of(runs, [&](const ScheduledRun& run) {
    const LiveRequest& request = *requests_.at(run.id);
    return run.n_tokens == 1 && run.ends_prompt && is_drawn(request) && !request.request.embedding &&
           run.begin + 1 < request.max_length && !(cache_->has_states() && is_due(request, run.begin + 1));
  });
}

void EngineLoop::start_ahead() {
  std::vector<ScheduledRun> next = now_.runs;
  for (ScheduledRun& run : next) ++run.begin;
  start(ahead_, next, Tokens::on_device);
}

// `runs`: those of the step that is under way whose requests are left, if there is one.
void EngineLoop::run(std::span<const ScheduledRun> runs) {
  if (!now_.plan) start(now_, runs, Tokens::known);
  if (!runs.empty() && runs.size() == now_.runs.size() && goes_on_alike(runs)) start_ahead();
  const Result<StepOutput> output = now_.plan->wait();
  const Clock::time_point done = Clock::now();
  const double seconds =
      seconds_between(std::max(now_.started, last_done_), done);  // a step ahead waits for the one before
  last_done_ = done;
  if (!runs.empty()) scheduler_.finish(seconds);
  ++counted_.n_steps;
  counted_.step_s.add(seconds);
  counted_.step_tokens.add(now_.arrays.n_tokens());
  now_.plan = nullptr;
  std::swap(now_, ahead_);
  take_output(ahead_, output);
}

void EngineLoop::take_output(const Flight& done, const Result<StepOutput>& output) {
  size_t rows_at = 0, logits_at = 0, hidden_at = 0;
  for (const ScheduledRun& run : done.runs) {
    if (auto left = leaving_.extract(run.id)) {
      leave(std::move(left.mapped()), !output.ok());
      ++rows_at;
      continue;
    }
    const auto found = requests_.find(run.id);
    LiveRequest& request = *found->second;
    if (!output.ok()) {
      end(request, StopReason::failed, output.error());
      continue;
    }
    const bool was_prompt = request.reads_prompt();
    request.cache.n_tokens += run.n_tokens;
    const StepOutput& out = output.value();
    const size_t n_hidden =
        out.hidden.size() / static_cast<size_t>(done.arrays.n_tokens()) * static_cast<size_t>(run.n_tokens);
    const std::span<const float> hidden = out.hidden.subspan(hidden_at, n_hidden);
    hidden_at += n_hidden;
    if (!run.ends_prompt) remember_if_due(request);
    if (was_prompt) {
      counted_.n_prefilled_tokens += static_cast<uint64_t>(run.n_tokens);
      request.request.sink->progress({request.cache.n_tokens, request.prompt_size, request.usage.n_cached});
    }
    if (request.request.embedding) {
      take_hidden(request, hidden);
    } else if (run.ends_prompt) {
      const size_t n_logits = is_drawn(request) ? 0 : static_cast<size_t>(options_.n_vocab);
      take_row(request, out.sampled[rows_at++], out.logits.subspan(logits_at, n_logits));
      logits_at += n_logits;
      if (requests_.contains(run.id)) remember_if_due(request);  // not before: what fails is not kept
    }
  }
  cache_->make_ready(done.arrays.n_tokens());
}

// The most likely token is known without another look at the logits, but where they are broken.
void EngineLoop::take_row(LiveRequest& request, TokenId sampled, std::span<float> logits) {
  if (is_drawn(request)) return take_drawn(request, sampled);
  const std::optional<TokenDraw> draw = request.answer.device_draw(0);
  const bool is_greedy = draw && draw->temperature <= kGreedyTemperature && sampled >= 0;
  if (is_greedy && std::isfinite(logits[static_cast<size_t>(sampled)])) return take_drawn(request, sampled);
  take_logits(request, logits);
}

bool EngineLoop::is_drawn(const LiveRequest& request) const {
  return options_.draws_tokens && request.answer.device_draw(0).has_value();
}

// Whether a request of n tokens is to be remembered.
bool EngineLoop::is_due(const LiveRequest& request, int n) const {
  if (!needs_checkpoints_) return n == request.prompt_size || n - request.n_remembered >= kRememberedTokens;
  return std::ranges::binary_search(request.checkpoints, n) || n % options_.state_interval == 0;
}

// What is computed is remembered as it comes, so that others can share it early and it counts as used.
void EngineLoop::remember_if_due(LiveRequest& request) {
  if (!is_due(request, request.cache.n_tokens)) return;
  cache_->remember(request.cache, request.fed());
  request.n_remembered = request.cache.n_tokens;
}

void EngineLoop::take_hidden(LiveRequest& request, std::span<const float> rows) {
  const size_t dim = static_cast<size_t>(options_.embedding_dim);
  const bool is_mean = request.request.embedding == Pooling::mean;
  std::vector<float>& sum = request.embedding;
  sum.resize(dim);
  for (size_t at = is_mean ? 0 : rows.size() - dim; at < rows.size(); at += dim) {
    for (size_t i = 0; i < dim; ++i) sum[i] = (is_mean ? sum[i] : 0) + rows[at + i];
  }
  if (!request.reads_prompt()) end(request, StopReason::end_token);
}

void EngineLoop::count_token(LiveRequest& request) {
  const Clock::time_point now = Clock::now();
  if (request.first_token == Clock::time_point{}) {
    request.first_token = now;
    counted_.time_to_first_token_s.add(seconds_between(request.submitted, now));
  } else {
    counted_.inter_token_s.add(seconds_between(request.last_token, now));
  }
  request.last_token = now;
}

void EngineLoop::take_logits(LiveRequest& request, std::span<float> logits) {
  count_token(request);
  Answer& answer = request.answer;
  const Result<Answer::Step> made = answer.push(logits, sampler_, request.cache.n_tokens < request.max_length);
  if (!made.ok()) return end(request, StopReason::failed, made.error());
  take_step(request, made.value());
}

void EngineLoop::take_drawn(LiveRequest& request, TokenId id) {
  count_token(request);
  const size_t position = static_cast<size_t>(request.cache.n_tokens);
  if (id < 0) {
    return end(request, StopReason::failed, no_choice(position, static_cast<size_t>(options_.n_vocab)));
  }
  take_step(request, request.answer.push(id, request.cache.n_tokens < request.max_length));
}

void EngineLoop::take_step(LiveRequest& request, const Answer::Step& step) {
  if (step.in_answer) {
    ++counted_.n_generated_tokens;
    request.request.sink->tokens(step.text, {&request.answer.last(), 1});
  }
  if (step.reason == StopReason::end_token && !step.in_answer) request.end_token = step.id;
  if (step.reason) end(request, *step.reason);
}

bool EngineLoop::is_under_way(RequestId id) const {
  return now_.plan && std::ranges::find(now_.runs, id, &ScheduledRun::id) != now_.runs.end();
}

void EngineLoop::give_back(LiveRequest& request, StopReason reason) {
  if (is_under_way(request.id)) {
    std::vector<TokenId> fed = reason == StopReason::failed ? std::vector<TokenId>{} : request.fed_ahead();
    leaving_.emplace(request.id, Leaving{std::move(request.cache), std::move(fed)});
  } else if (reason == StopReason::failed) {
    cache_->release(std::move(request.cache));
  } else {
    const std::span<const TokenId> fed = request.fed();
    cache_->retire(std::move(request.cache), fed);
  }
}

void EngineLoop::leave(Leaving leaving, bool step_failed) {
  if (step_failed || leaving.fed.empty()) return cache_->release(std::move(leaving.cache));
  ++leaving.cache.n_tokens;
  cache_->retire(std::move(leaving.cache), leaving.fed);
}

// The sink is told before the inbox: whoever sees drained() has missed no end.
void EngineLoop::end(LiveRequest& request, StopReason reason, std::optional<Error> error) {
  if (const std::string_view rest = request.answer.finish(); !rest.empty()) request.request.sink->tokens(rest, {});
  const Outcome outcome = outcome_of(request, reason, std::move(error));
  if (request.is_admitted) give_back(request, reason);
  scheduler_.remove(request.id);
  count_end(request, outcome);
  const std::unique_ptr<LiveRequest> last = std::move(requests_.extract(request.id).mapped());
  last->request.sink->end(outcome);
  inbox_.ended(*last);
}

void EngineLoop::count_end(const LiveRequest& request, const Outcome& outcome) {
  ++counted_.n_ended[static_cast<size_t>(outcome.reason)];
  if (!request.is_admitted) return;
  const Timings& t = outcome.timings;
  counted_.prefill_s.add(t.prefill_s);
  counted_.decode_s.add(t.decode_s);
  counted_.e2e_s.add(t.queued_s + t.prefill_s + t.decode_s);
  counted_.prompt_tokens.add(outcome.usage.n_prompt);
  counted_.generated_tokens.add(outcome.usage.n_completion);
}

void EngineLoop::publish() {
  const CachePools& pools = cache_->pools();
  counted_.n_prefilling = scheduler_.n_prefilling();
  counted_.n_decoding = scheduler_.n_decoding();
  counted_.pages.clear();
  for (size_t g = 0; g < pools.pages.size(); ++g) {
    const PagePool& pool = pools.pages[g];
    counted_.pages.push_back({cache_->windows()[g], pool.n_total(), pool.n_pinned(), pool.n_cached()});
  }
  counted_.n_states = pools.states.n_total();
  counted_.n_states_cached = pools.states.n_cached();
  counted_.n_evicted_pages = cache_->tree().n_evicted_pages();
  const std::lock_guard lock(stats_mutex_);
  published_ = counted_;
}

EngineStats EngineLoop::stats() const {
  EngineStats stats = [&] {
    const std::lock_guard lock(stats_mutex_);
    return published_;
  }();
  stats.n_waiting = inbox_.n_waiting();
  stats.n_submitted = inbox_.n_taken();
  stats.n_refused = inbox_.n_refused();
  return stats;
}

}  // namespace zinc
