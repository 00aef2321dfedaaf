#include "engine/batch_bench.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "cache/cache_plan.h"

namespace zinc {

using Clock = std::chrono::steady_clock;

namespace {

constexpr int kBatchWarmUpTokens = 8;
constexpr int64_t kMaxBatchPages = int64_t{1} << 24;  // of plan_cache

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

// Bytes with which all sequences fit at the same time; by default an engine has less if memory is short, and its
// requests wait.
Result<size_t> cache_bytes_for(const ModelInstance& model, const EngineOptions& options) {
  if (int64_t{options.max_sequences} * pages_of(options.context) > kMaxBatchPages) {
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

Result<std::unique_ptr<Engine>> make_batch_engine(ModelInstance model, EngineOptions options) {
  ZINC_TRY(bytes, cache_bytes_for(model, options));
  options.cache_bytes = bytes;
  ZINC_TRY(engine, Engine::create(std::move(model), options));
  if (Status s = engine->wait_until_prepared(); !s.ok()) return s.error();
  return std::move(engine);
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
                              .step_tokens = step_tokens,
                              .queue_limit = largest.n_sequences,
                              // No effect on the measured steps, which either prefill or decode: it shortens the lead.
                              .max_decode_slowdown = std::numeric_limits<int>::max(),
                              .speculation = {.mode = SpeculationMode::off},  // every step decodes one token each
                              .trace = trace};
  Result<std::unique_ptr<Engine>> engine = make_batch_engine(std::move(model), options);
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

// The sequences of one submission. Each has a namespace of its own in the prefix cache.
class BatchBench::Batch {
  struct TokenCount : RequestSink {
    void progress(const PromptProgress&) override {}
    void tokens(std::string_view, std::span<const OutputToken> more) override {
      n_tokens += static_cast<int>(more.size());
    }
    void end(const Outcome& what) override { outcome = what; }

    int n_tokens = 0;
    std::optional<Outcome> outcome;
  };

 public:
  // cache_share: of the KV cache, that each sequence's prefix may keep after its end.
  Status submit(Engine& engine, std::span<const std::vector<TokenId>> prompts, int max_tokens, double cache_share) {
    for (const std::vector<TokenId>& prompt : prompts) {
      sequences_.push_back(std::make_shared<TokenCount>());
      Request request{.prompt = prompt,
                      .cache_namespace = kSharedNamespace + sequences_.size(),
                      .cache_share = cache_share,
                      .sink = sequences_.back()};
      request.options.sampling.temperature = 0;
      request.options.max_tokens = max_tokens;
      request.options.ignore_eos = true;
      ZINC_TRY(id, engine.submit(std::move(request)));
      ids_.push_back(id);
    }
    return ok_status();
  }

  void cancel(Engine& engine) const {
    for (const RequestId id : ids_) engine.cancel(id);
  }

  int64_t n_tokens() const {
    int64_t n = 0;
    for (const auto& sequence : sequences_) n += sequence->n_tokens;
    return n;
  }
  bool has_tokens(int n) const {  // each sequence
    return std::ranges::all_of(sequences_, [&](const auto& sequence) { return sequence->n_tokens >= n; });
  }
  bool has_ended() const {
    return std::ranges::all_of(sequences_, [](const auto& sequence) { return sequence->outcome.has_value(); });
  }
  Status status() const {  // the error of a failed sequence
    for (const auto& sequence : sequences_) {
      if (sequence->outcome && sequence->outcome->error) return *sequence->outcome->error;
    }
    return ok_status();
  }

 private:
  std::vector<std::shared_ptr<TokenCount>> sequences_;
  std::vector<RequestId> ids_;
};

Status BatchBench::step_until(const Batch& batch, const std::function<bool()>& done) {
  while (!done()) {
    if (cancelled_ && cancelled_()) return fail(ErrorCode::cancelled, "interrupted");
    const bool has_work = engine_->step();
    if (Status s = batch.status(); !s.ok()) return s;
    if (!has_work && !done()) return fail(ErrorCode::unavailable, "the sequences ended too early");
  }
  return ok_status();
}

Result<double> BatchBench::prefill_s(const BatchTest& test, std::span<const std::vector<TokenId>> prompts) {
  const uint64_t n_before = engine_->stats().n_prefilled_tokens;
  Batch batch;
  const Clock::time_point start = Clock::now();
  if (Status s = batch.submit(*engine_, prompts, 1, 1); !s.ok()) return s.error();
  if (Status s = step_until(batch, [&] { return batch.has_ended(); }); !s.ok()) return s.error();
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
  Batch batch;
  if (Status s = batch.submit(*engine_, prompts, max_lead_ + 1 + test.n_gen, 0); !s.ok()) return s.error();
  if (Status s = step_until(batch, [&] { return batch.has_tokens(1); }); !s.ok()) return s.error();
  const int64_t n_before = batch.n_tokens();
  const Clock::time_point start = Clock::now();
  if (Status s = step_until(batch, [&] { return batch.has_tokens(1 + test.n_gen); }); !s.ok()) return s.error();
  const double seconds = seconds_since(start);
  const int64_t n_generated = batch.n_tokens() - n_before;
  batch.cancel(*engine_);
  while (engine_->step()) {  // also ends the step in flight
  }
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
