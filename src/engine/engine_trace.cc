#include "engine/engine_trace.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/pluralize.h"

namespace zinc {

EngineTrace::EngineTrace(const TraceOptions& options, const Graph& graph)
    : trace_(*options.trace),
      steps_(options, graph),
      requests_(options),
      scheduler_(trace_.add_track(options.name, "scheduler")) {}

void EngineTrace::add_admission(const RequestState& request) {
  deferred_.erase(request.id);
  const json::object args{{"prompt_tokens", request.usage.n_prompt},
                          {"cached_tokens", request.usage.n_cached},
                          {"common_tokens", request.usage.n_common},
                          {"cache_miss", cache_miss_name(request.usage.miss)}};
  const std::string name = request.usage.n_cached > 0 ? fmt::format("admit request {}: {} cached", request.id,
                                                                    pluralize(request.usage.n_cached, "token"))
                                                      : fmt::format("admit request {}", request.id);
  trace_.add_instant(scheduler_, name, request.admitted, to_json(args));
}

void EngineTrace::add_preemption(const RequestState& request) {
  trace_.add_instant(scheduler_, fmt::format("preempt request {}: no free KV pages", request.id), Trace::Clock::now(),
                     fmt::format(R"({{"tokens":{}}})", request.output.tokens().size()));
}

void EngineTrace::add_resumption(const RequestState& request) {
  deferred_.erase(request.id);
  trace_.add_instant(
      scheduler_, fmt::format("resume request {}: {} cached", request.id, pluralize(request.cache.n_tokens, "token")),
      Trace::Clock::now(), fmt::format(R"({{"tokens":{}}})", request.prefill_size));
}

void EngineTrace::add_deferral(RequestId id, Deferral why) {
  const auto [known, is_new] = deferred_.try_emplace(id, why);
  if (!is_new && known->second == why) return;
  known->second = why;
  trace_.add_instant(
      scheduler_,
      fmt::format("defer request {}: {}", id, why == Deferral::memory ? "no free KV pages" : "prefix in prefill"),
      Trace::Clock::now());
}

void EngineTrace::add_decision(uint64_t step, std::span<const ScheduledSequence> sequences,
                               const Scheduler& scheduler) {
  json::array rows;
  int n_decode = 0, n_prefill = 0;
  for (const ScheduledSequence& entry : sequences) {
    const bool is_decode = entry.n_tokens == 1 && entry.samples_token;
    (is_decode ? n_decode : n_prefill) += entry.n_tokens;
    rows.push_back(json::object{{"request", entry.id},
                                {"kind", is_decode ? "decode" : "prefill"},
                                {"position", entry.begin},
                                {"tokens", entry.n_tokens}});
  }
  const json::object args{
      {"rows", std::move(rows)}, {"running", scheduler.n_running()}, {"waiting", scheduler.n_waiting()}};
  trace_.add_instant(scheduler_, fmt::format("step {}: {} decode, {} prefill", step, n_decode, n_prefill),
                     Trace::Clock::now(), to_json(args));
}

void EngineTrace::add_end(const RequestState& request, const Outcome& outcome) {
  deferred_.erase(request.id);
  const Usage& usage = outcome.usage;
  json::object args{{"client", request.request.client},
                    {"prompt_tokens", usage.n_prompt},
                    {"cached_tokens", usage.n_cached},
                    {"generated_tokens", usage.n_completion}};
  if (outcome.error) args["error"] = outcome.error->message;
  const Time none;
  requests_.add(request.id,
                {.submitted = request.submitted,
                 .admitted = request.was_admitted() ? request.admitted : none,
                 .first_token = request.first_token,
                 .ended = Trace::Clock::now()},
                stop_reason_name(outcome.reason), to_json(args));
}

void EngineTrace::add_stats(const EngineStats& stats) {
  const Time now = Trace::Clock::now();
  json::object pages;
  for (const PageUse& use : stats.pages) {
    const std::string group = use.window > 0 ? fmt::format(" (window {})", use.window) : "";
    pages["in use" + group] = use.n_in_use;
    pages["cached" + group] = use.n_cached;
  }
  if (!pages.empty()) trace_.add_counter(scheduler_, "KV pages", now, to_json(pages));
  trace_.add_counter(scheduler_, "running requests", now,
                     fmt::format(R"({{"prefill":{},"decode":{}}})", stats.n_prefilling, stats.n_decoding));
  if (stats.n_evicted_pages == n_evicted_pages_) return;
  trace_.add_instant(scheduler_,
                     fmt::format("evict {} of the prefix cache",
                                 pluralize(static_cast<int64_t>(stats.n_evicted_pages - n_evicted_pages_), "page")),
                     now);
  n_evicted_pages_ = stats.n_evicted_pages;
}

}  // namespace zinc
