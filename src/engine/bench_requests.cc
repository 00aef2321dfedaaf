#include "engine/bench_requests.h"

#include <algorithm>
#include <limits>

#include "cache/cache_plan.h"

namespace zinc {
namespace {

constexpr int64_t kMaxBenchPages = int64_t{1} << 24;  // of plan_cache

Result<size_t> cache_bytes_for(const ModelInstance& model, const EngineOptions& options) {
  if (int64_t{options.max_sequences} * pages_of(options.context) > kMaxBenchPages) {
    return fail(ErrorCode::out_of_memory, "too many KV pages");
  }
  ZINC_TRY(plan, plan_cache(model.model().caches, model.kv_format(),
                            {.max_sequences = options.max_sequences,
                             .context = options.context,
                             .n_full_contexts = options.max_sequences,
                             .max_chunk_tokens = options.step_tokens,
                             .checkpoint_interval = options.checkpoint_interval,
                             .max_bytes = std::numeric_limits<size_t>::max(),
                             .max_tokens = 1}));  // no pages beyond these contexts
  return plan.n_bytes;
}

}  // namespace

Result<std::unique_ptr<Engine>> create_bench_engine(ModelInstance model, EngineOptions options) {
  options.step_tokens = model.backend_info().step_tokens;
  ZINC_TRY(bytes, cache_bytes_for(model, options));
  options.cache_bytes = bytes;
  ZINC_TRY(engine, Engine::create(std::move(model), options));
  if (Status s = engine->wait_until_prepared(); !s.ok()) return s.error();
  return std::move(engine);
}

Status BenchRequests::submit(Request request) {
  sinks_.push_back(std::make_shared<TokenCount>());
  request.sink = sinks_.back();
  request.options.sampling.temperature = 0;
  request.options.ignore_eos = true;
  ZINC_TRY(id, engine_.submit(std::move(request)));
  ids_.push_back(id);
  return ok_status();
}

Status BenchRequests::step_until(const std::function<bool()>& done) {
  while (!done()) {
    if (cancelled_ && cancelled_()) return fail(ErrorCode::cancelled, "interrupted");
    const bool has_work = engine_.step();
    for (const auto& sink : sinks_) {
      if (sink->outcome && sink->outcome->error) return *sink->outcome->error;
    }
    if (!has_work && !done()) return fail(ErrorCode::unavailable, "the sequences ended too early");
  }
  return ok_status();
}

void BenchRequests::cancel() {
  for (const RequestId id : ids_) engine_.cancel(id);
  while (engine_.step()) {
  }
}

int64_t BenchRequests::n_tokens() const {
  int64_t n = 0;
  for (const auto& sink : sinks_) n += sink->n_tokens;
  return n;
}

bool BenchRequests::has_tokens(int n) const {
  return std::ranges::all_of(sinks_, [&](const auto& sink) { return sink->n_tokens >= n; });
}

bool BenchRequests::has_ended() const {
  return std::ranges::all_of(sinks_, [](const auto& sink) { return sink->outcome.has_value(); });
}

}  // namespace zinc
