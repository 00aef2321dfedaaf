#include "engine/batch_bench.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "cache/cache_plan.h"
#include "engine/bench_requests.h"

namespace zinc {

using Clock = std::chrono::steady_clock;

namespace {

constexpr int kBatchWarmUpTokens = 8;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Tokens that the first sequence may be ahead of the last one. Where a sequence can resume at any token, the prefix
// cache has all prompts and the lead is a few steps. Where it needs a checkpoint that may be evicted, up to all prompts
// are prefilled again while other sequences decode: one token of lead per step, with a margin for smaller steps.
int max_lead_of(const Model& model, const BatchTest& largest, int step_tokens) {
  const std::vector<PageGroup> groups = page_groups(model.caches);
  const bool needs_checkpoints =
      state_bytes(model.caches) > 0 || std::ranges::any_of(groups, [](const PageGroup& g) { return g.window > 0; });
  const int64_t n_prefill_steps = needs_checkpoints ? largest.n_prompt_total() / step_tokens : 0;
  return kPageTokens + static_cast<int>(2 * n_prefill_steps);
}

// The test that is the largest in every respect: tests are combinations of the same lengths and batch sizes.
BatchTest largest_of(std::span<const BatchTest> tests) {
  BatchTest largest;
  for (const BatchTest& test : tests) {
    largest.n_prompt = std::max(largest.n_prompt, test.n_prompt);
    largest.n_gen = std::max(largest.n_gen, test.n_gen);
    largest.n_sequences = std::max(largest.n_sequences, test.n_sequences);
  }
  return largest;
}

// Each sequence has a namespace of its own in the prefix cache. cache_share: of the KV cache, that its prefix may keep
// after its end.
Status submit_all(BenchRequests& batch, std::span<const std::vector<TokenId>> prompts, int max_tokens,
                  double cache_share) {
  CacheNamespace own = kSharedNamespace;
  for (const std::vector<TokenId>& prompt : prompts) {
    Request request{.prompt = prompt, .cache_namespace = ++own, .cache_share = cache_share};
    request.options.max_tokens = max_tokens;
    if (Status submitted = batch.submit(std::move(request)); !submitted.ok()) return submitted;
  }
  return ok_status();
}

}  // namespace

std::string BatchTest::name() const { return fmt::format("pp{} tg{} b{}", n_prompt, n_gen, n_sequences); }

Result<BatchBench> BatchBench::prepare(ModelInstance model, std::span<const BatchTest> tests, const TraceOptions& trace,
                                       std::function<bool()> cancelled) {
  const BatchTest largest = largest_of(tests);
  const int step_tokens = model.backend_info().step_tokens;
  const int max_lead = max_lead_of(model.model(), largest, step_tokens);
  const EngineOptions options{.max_sequences = largest.n_sequences,
                              .context = largest.n_prompt + largest.n_gen + max_lead,
                              .queue_limit = largest.n_sequences,
                              // No effect on the measured steps, which either prefill or decode: it shortens the lead.
                              .max_decode_slowdown = std::numeric_limits<int>::max(),
                              .speculation = {.mode = SpeculationMode::off},  // every step decodes one token each
                              .trace = trace};
  Result<std::unique_ptr<Engine>> engine = create_bench_engine(std::move(model), options);
  if (!engine.ok() && engine.error().code == ErrorCode::out_of_memory) {
    return fail(
        ErrorCode::out_of_memory,
        "{} sequences of {} tokens need a KV cache that does not fit in the memory left after loading the model ({}); "
        "use a smaller --batch, -p or -n",
        options.max_sequences, options.context, engine.error().message);
  }
  if (!engine.ok()) return engine.error();
  return BatchBench(std::move(engine.value()), max_lead, std::move(cancelled));
}

Result<double> BatchBench::prefill_s(const BatchTest& test, std::span<const std::vector<TokenId>> prompts) {
  const uint64_t n_before = engine_->stats().n_prefilled_tokens;
  BenchRequests batch(*engine_, cancelled_);
  const Clock::time_point start = Clock::now();
  if (Status s = submit_all(batch, prompts, 1, 1); !s.ok()) return s.error();
  if (Status s = batch.step_until_ended(); !s.ok()) return s.error();
  const double seconds = seconds_since(start);
  const uint64_t n_prefilled = engine_->stats().n_prefilled_tokens - n_before;
  if (static_cast<int64_t>(n_prefilled) != test.n_prompt_total()) {
    return fail(ErrorCode::unavailable, "{}: {} tokens were prefilled instead of {}", test.name(), n_prefilled,
                test.n_prompt_total());
  }
  return seconds;
}

// When the last sequence has its first token, the others have one or more, and from then on every step decodes all.
Result<double> BatchBench::decode_s(const BatchTest& test, std::span<const std::vector<TokenId>> prompts) {
  BenchRequests batch(*engine_, cancelled_);
  if (Status s = submit_all(batch, prompts, max_lead_ + 1 + test.n_gen, 0); !s.ok()) return s.error();
  if (Status s = batch.step_until([&] { return batch.has_tokens(1); }); !s.ok()) return s.error();
  const int64_t n_before = batch.n_tokens();
  const Clock::time_point start = Clock::now();
  if (Status s = batch.step_until([&] { return batch.has_tokens(1 + test.n_gen); }); !s.ok()) return s.error();
  const double seconds = seconds_since(start);
  const int64_t n_generated = batch.n_tokens() - n_before;
  batch.cancel();
  if (n_generated == test.n_gen_total()) return seconds;
  return fail(ErrorCode::unavailable, "{}: {} tokens were generated instead of {}", test.name(), n_generated,
              test.n_gen_total());
}

Result<BatchTimes> BatchBench::measure(const BatchTest& test) {
  const auto n_vocab = static_cast<unsigned>(engine_->limits().n_vocab);
  std::vector<std::vector<TokenId>> prompts(static_cast<size_t>(test.n_sequences));
  for (std::vector<TokenId>& prompt : prompts) {
    prompt.resize(static_cast<size_t>(test.n_prompt));
    for (TokenId& token : prompt) token = static_cast<TokenId>(random_() % n_vocab);
  }
  ZINC_TRY(prefill, prefill_s(test, prompts));
  ZINC_TRY(decode, decode_s(test, prompts));
  return BatchTimes{.prefill_s = prefill, .decode_s = decode};
}

Status BatchBench::warm_up(const BatchTest& test) {
  BatchTest shorter = test;
  shorter.n_gen = std::min(test.n_gen, kBatchWarmUpTokens);
  ZINC_TRY(times, measure(shorter));
  return ok_status();
}

}  // namespace zinc
