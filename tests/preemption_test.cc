// Preemption: more requests run than the KV cache has pages for. Every output is the one of an unpreempted run, bit for
// bit, on every kind of cache; nothing is emitted twice, nothing leaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "constrain/gbnf.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

// Checks what a sink may rely on: progress never goes back and ends with the first token.
struct StrictSink : RecordingSink {
  void progress(const PromptProgress& at) override {
    EXPECT_GE(at.n_done, last_progress.n_done);
    EXPECT_LE(at.n_done, at.n_total);
    EXPECT_TRUE(output_tokens.empty());
    RecordingSink::progress(at);
  }
};

struct Submitted {
  Request request;
  RequestId id = 0;
  std::shared_ptr<StrictSink> output = std::make_shared<StrictSink>();
};

Submitted submit_strict(Engine& engine, Request request) {
  Submitted out{.request = std::move(request)};
  Request submitted = out.request;
  submitted.sink = out.output;
  out.id = engine.submit(std::move(submitted)).value();
  return out;
}

struct Kind {
  std::string model, what, kv_format = "f16";
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.what; }

class PreemptionTest : public testing::TestWithParam<Kind> {
 protected:
  PreemptionTest() : file_{.name = GetParam().model, .kv_format = GetParam().kv_format}, model_(load_model(file_)) {}

  // An engine whose cache is as large as that of n_contexts sequences; larger, if its windows and states need more.
  std::unique_ptr<Engine> serve(int n_contexts, EngineOptions options) const {
    EngineOptions few = options;
    few.max_sequences = n_contexts;
    for (size_t n_bytes = make_engine(file_, few)->limits().cache_bytes;; n_bytes += n_bytes / 64) {
      options.cache_bytes = n_bytes;
      if (Result<std::unique_ptr<Engine>> engine = Engine::create(load_model(file_), options); engine.ok())
        return std::move(engine.value());
    }
  }
  Request request(size_t n_prompt, int max_tokens, uint32_t seed) const {
    return {.prompt = random_tokens(tokenizer_, n_prompt, seed), .options = greedy(max_tokens)};
  }
  void expect_equal_to_solo(const Submitted& one, int context) const {
    EXPECT_EQ(one.output->n_ends, 1);
    EXPECT_EQ(one.output->n_after_end, 0);
    EXPECT_TRUE(same_output(*one.output, generate_alone(model_, one.request, context)));
    const Usage& usage = one.output->outcome.usage;
    EXPECT_EQ(usage.n_prompt, static_cast<int>(one.request.prompt.size()));
    EXPECT_LT(usage.n_cached, usage.n_prompt);
    EXPECT_EQ(usage.n_completion, static_cast<int>(one.output->output_tokens.size()));
  }

  ServedFile file_;
  ModelInstance model_;
  Tokenizer tokenizer_ = std::move(Tokenizer::load(model_.file()).value());
};

// Without a token limit, sampled and greedy, some until their end token and most until the context is full.
TEST_P(PreemptionTest, requests_without_a_token_limit_get_their_whole_output_from_a_small_cache) {
  const bool is_dense = GetParam().what == "dense";
  const int n_requests = is_dense ? 300 : 40, n_contexts = is_dense ? 20 : 4, max_sequences = is_dense ? 64 : 16;
  constexpr int kContext = 192;
  const std::unique_ptr<Engine> engine = serve(n_contexts, {.max_sequences = max_sequences,
                                                            .context = kContext,
                                                            .step_tokens = 64,
                                                            .queue_limit = n_requests,
                                                            .checkpoint_interval = 48});
  EXPECT_LE(engine->stats().pages[0].n_total - 1, n_contexts * kContext / kPageTokens);
  std::mt19937 random(1);
  std::vector<Submitted> all;
  for (int i = 0; i < n_requests; ++i) {
    Request each = request(3 + random() % 60, 0, static_cast<uint32_t>(i));
    if (i % 3 == 0) each.options.sampling = {.temperature = 1, .top_p = 0.9f, .repeat_penalty = 1.1f, .seed = random()};
    each.options.ignore_eos = i % 4 != 0;
    each.client = fmt::format("client {}", i % 5);
    all.push_back(submit_strict(*engine, std::move(each)));
  }
  int max_running = 0;
  while (engine->step()) max_running = std::max(max_running, engine->stats().n_prefilling + engine->stats().n_decoding);
  for (const Submitted& one : all) expect_equal_to_solo(one, kContext);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(pages_in_use(*engine), 0);
  EXPECT_EQ(stats.n_waiting, 0);
  EXPECT_GT(max_running, n_contexts);
  EXPECT_GT(stats.n_preempted, 0u);
  EXPECT_LT(stats.n_preempted, 3u * static_cast<unsigned>(n_requests)) << "thrashing";
  fmt::print("{}: {} requests in a cache of {} contexts: {} preempted, {} tokens computed again\n", GetParam().what,
             n_requests, n_contexts, stats.n_preempted,
             stats.n_prefilled_tokens + stats.n_cached_tokens - stats.n_prompt_tokens);
}

// Conversations that share prefixes, with and without limits, cancelled at any time, in caches of one to three
// contexts.
TEST_P(PreemptionTest, outputs_from_tiny_caches_equal_those_of_a_cold_start) {
  constexpr int kContext = 320;
  std::mt19937 random(7);
  uint64_t n_preempted = 0;
  struct Sizes {
    int n_contexts, step_tokens;
  };
  for (const auto [n_contexts, step_tokens] : {Sizes{1, 48}, Sizes{2, 1}, Sizes{2, 7}, Sizes{3, 48}}) {
    const std::unique_ptr<Engine> engine = serve(
        n_contexts, {.max_sequences = 5, .context = kContext, .step_tokens = step_tokens, .checkpoint_interval = 32});
    const std::vector<TokenId> system = random_tokens(tokenizer_, 40, 1);
    std::vector<Submitted> all;
    for (uint32_t i = 0; i < 14; ++i) {
      Request each = request(1 + random() % 30, random() % 3 > 0 ? 0 : 1 + static_cast<int>(random() % 200), i);
      if (random() % 2 == 0) each.prompt.insert(each.prompt.begin(), system.begin(), system.end());
      each.boundaries = {static_cast<int>(system.size())};
      each.client = fmt::format("client {}", random() % 3);
      each.cache_share = random() % 4 == 0 ? 0.2 : 1.0;
      all.push_back(submit_strict(*engine, std::move(each)));
      for (size_t n = random() % 30; n > 0; --n) engine->step();
      if (random() % 5 == 0) engine->cancel(all[random() % all.size()].id);
    }
    run_all(*engine);
    for (const Submitted& one : all) {
      if (one.output->outcome.reason != StopReason::cancelled) expect_equal_to_solo(one, kContext);
    }
    const EngineStats stats = engine->stats();
    n_preempted += stats.n_preempted;
    EXPECT_EQ(pages_in_use(*engine), 0);
    EXPECT_EQ(stats.n_waiting + stats.n_prefilling + stats.n_decoding, 0);
    EXPECT_EQ(std::accumulate(stats.n_ended.begin(), stats.n_ended.end(), uint64_t{0}), all.size());
  }
  EXPECT_GT(n_preempted, 20u) << "the caches are too large to test preemption";
}

// One prompt token per step: while the second request computes its prompt, the first one takes its pages.
class PreemptedInPrefillTest : public PreemptionTest {
 protected:
  const EngineOptions options_{.max_sequences = 2, .context = 256, .step_tokens = 1};

  Outcome outcome_alone(const Request& request) {
    const std::unique_ptr<Engine> engine = make_engine(file_, options_);
    const Submitted alone = submit_strict(*engine, request);
    run_all(*engine);
    return alone.output->outcome;
  }
  Outcome outcome_preempted(const Request& request) {
    const std::unique_ptr<Engine> engine = serve(1, options_);
    const Submitted older = submit_strict(*engine, this->request(10, 0, 1));
    engine->step();
    const Submitted younger = submit_strict(*engine, request);
    run_all(*engine);
    EXPECT_GT(engine->stats().n_preempted, 0u);
    EXPECT_EQ(younger.output->last_progress.n_done, younger.output->last_progress.n_total);
    expect_equal_to_solo(older, options_.context);
    return younger.output->outcome;
  }
};

TEST_P(PreemptedInPrefillTest, every_prompt_token_is_scored_once) {
  Request scored = request(130, 5, 2);
  scored.options.n_prompt_logprobs = 2;
  const Outcome expected = outcome_alone(scored), outcome = outcome_preempted(scored);
  ASSERT_EQ(outcome.prompt_tokens.size(), 130u);
  for (size_t i = 1; i < 130; ++i) {
    EXPECT_EQ(outcome.prompt_tokens[i].id, expected.prompt_tokens[i].id);
    EXPECT_EQ(outcome.prompt_tokens[i].logprob, expected.prompt_tokens[i].logprob) << i;
  }
}

TEST_P(PreemptedInPrefillTest, every_token_counts_once_in_an_embedding) {
  for (const Pooling pooling : {Pooling::mean, Pooling::last}) {
    Request embedded = request(130, 0, 2);
    embedded.embedding = pooling;
    EXPECT_EQ(outcome_preempted(embedded).embedding, outcome_alone(embedded).embedding);
  }
}

const std::vector<Kind> kKinds = {{"qwen3-q8_0", "dense"},
                                  {"gemma3-f16", "sliding"},
                                  {"qwen35moe-q8_0", "hybrid"},
                                  {"gpt-oss-mxfp4", "alternating"},
                                  {"tiny llama", "dense_in_8_bits", "q8_0"},
                                  {"tiny gemma4 with layer embeddings", "shared_layers"}};
std::string kind_name(const testing::TestParamInfo<Kind>& info) { return info.param.what; }
INSTANTIATE_TEST_SUITE_P(Kinds, PreemptionTest, testing::ValuesIn(kKinds), kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, PreemptedInPrefillTest, testing::ValuesIn(kKinds), kind_name);

// Two requests that grow in a cache of one context, on one kind of model: the second one is preempted.
class PreemptedRequest : public testing::Test {
 protected:
  void start(EngineOptions options = {.max_sequences = 2, .context = 256, .step_tokens = 64}) {
    EngineOptions one = options;
    one.max_sequences = 1;
    options.cache_bytes = make_engine(kFile, one)->limits().cache_bytes;
    engine_ = make_engine(kFile, options);
  }
  Request request(size_t n_prompt, uint32_t seed) const {
    return {.prompt = random_tokens(engine_->tokenizer(), n_prompt, seed), .options = greedy(0)};
  }
  Submitted submit(Request request) { return submit_strict(*engine_, std::move(request)); }
  // Submits it after a request without a limit, and runs until it is preempted.
  Submitted submit_and_preempt(Request request) {
    submit(this->request(20, 1));
    engine_->step();
    const Submitted out = submit(std::move(request));
    while (engine_->stats().n_preempted == 0) EXPECT_TRUE(engine_->step());
    EXPECT_FALSE(out.output->output_tokens.empty());
    return out;
  }
  void expect_equal_to_solo(const Submitted& one) {
    run_all(*engine_);
    EXPECT_TRUE(same_output(*one.output, generate_alone(engine_->model(), one.request, 256))) << one.output->text;
    EXPECT_EQ(pages_in_use(*engine_), 0);
  }

  static constexpr ServedFile kFile{.name = "qwen3-q8_0"};
  std::unique_ptr<Engine> engine_;
};

TEST_F(PreemptedRequest, continues_its_sampling_penalties_and_stop_strings) {
  start();
  Request sampled = request(20, 2);
  sampled.options.sampling = {.temperature = 1.2f, .repeat_penalty = 1.3f, .dry_multiplier = 0.8f, .seed = 5};
  const RecordingSink whole = generate_alone(engine_->model(), sampled, 256);
  ASSERT_GT(whole.text.size(), 20u);
  sampled.options.stop = {whole.text.substr(whole.text.size() - 10)};
  const Submitted one = submit_and_preempt(sampled);
  expect_equal_to_solo(one);
  EXPECT_EQ(one.output->outcome.reason, StopReason::stop_string);
}

TEST_F(PreemptedRequest, continues_its_output_constraint) {
  start();
  const Tokenizer& tokenizer = engine_->tokenizer();
  Request constrained = request(20, 2);
  constrained.options.sampling = {.temperature = 1.5f, .seed = 3};
  constrained.options.constraint.grammar =
      std::make_shared<Constraint>(std::move(parse_gbnf(R"(root ::= ([a-c] [0-9] "-"){70})").value()), tokenizer,
                                   std::make_shared<const TokenTrie>(tokenizer));
  const Submitted one = submit_and_preempt(constrained);
  expect_equal_to_solo(one);
  EXPECT_EQ(one.output->text.size(), 210u);
  EXPECT_EQ(one.output->outcome.reason, StopReason::end_token);
}

TEST_F(PreemptedRequest, continues_its_thinking_budget) {
  start();
  Request thinking = request(20, 2);
  thinking.options.thinking = {.open_tag = "<think>", .close_tag = "</think>", .starts_open = true, .max_tokens = 150};
  engine_->tokenizer().encode("</think>", {.add_special = false, .parse_special = true},
                              thinking.options.thinking.forced_end);
  const Submitted one = submit_and_preempt(thinking);
  EXPECT_LT(one.output->output_tokens.size(), 150u);
  expect_equal_to_solo(one);
  EXPECT_EQ(one.output->outcome.usage.n_reasoning, 150 + static_cast<int>(thinking.options.thinking.forced_end.size()));
}

// 40 tokens of its prompt are cached when it is admitted, and more when it is resumed.
TEST_F(PreemptedRequest, reports_usage_and_times_of_its_first_admission) {
  start();
  Request cached = request(40, 2);
  cached.options.max_tokens = 1;
  submit(cached);
  run_all(*engine_);
  const EngineStats before = engine_->stats();
  Request longer = request(60, 3);
  std::ranges::copy(cached.prompt, longer.prompt.begin());
  const Submitted one = submit_and_preempt(longer);
  expect_equal_to_solo(one);
  const Outcome& outcome = one.output->outcome;
  EXPECT_EQ(outcome.usage.n_cached, 40);
  EXPECT_EQ(outcome.usage.n_common, 40);
  EXPECT_EQ(outcome.usage.n_prompt, 60);
  EXPECT_GT(outcome.timings.decode_s, outcome.timings.queued_s + outcome.timings.prefill_s)
      << "the time until it is resumed is between two of its tokens";
  const EngineStats after = engine_->stats();
  EXPECT_EQ(after.n_prompt_tokens - before.n_prompt_tokens, 20u + 60);
  EXPECT_EQ(after.n_cached_tokens - before.n_cached_tokens, 40u);
  EXPECT_EQ(after.time_to_first_token_s.n - before.time_to_first_token_s.n, 2u);
  EXPECT_EQ(after.queue_s.n - before.queue_s.n, 2u);
}

TEST_F(PreemptedRequest, keeps_the_scores_of_its_prompt) {
  start();
  Request scored = request(40, 2);
  scored.options.n_prompt_logprobs = 0;
  const Submitted one = submit_and_preempt(scored);
  expect_equal_to_solo(one);
  EXPECT_EQ(one.output->outcome.prompt_tokens.size(), 40u);
}

TEST_F(PreemptedRequest, is_resumed_from_the_prefix_cache_if_its_pages_were_not_needed) {
  start();
  const Submitted older = submit(request(20, 1));
  engine_->step();
  const Submitted one = submit(request(20, 2));
  while (engine_->stats().n_preempted == 0) engine_->step();
  engine_->cancel(older.id);
  const uint64_t n_before = engine_->stats().n_prefilled_tokens;
  expect_equal_to_solo(one);
  EXPECT_EQ(engine_->stats().n_prefilled_tokens, n_before + 1) << "the token that was sampled last";
}

TEST_F(PreemptedRequest, is_not_resumed_into_the_pages_that_it_has_just_lost) {
  start();
  const Submitted older = submit(request(20, 1));
  engine_->step();
  submit(request(20, 2));
  while (older.output->n_ends == 0) engine_->step();
  EXPECT_EQ(engine_->stats().n_preempted, 1u);
  run_all(*engine_);
}

TEST_F(PreemptedRequest, that_is_cancelled_while_it_waits_ends_with_its_output_so_far) {
  start();
  const Submitted one = submit_and_preempt(request(20, 2));
  EXPECT_EQ(engine_->stats().n_waiting, 1);
  const size_t n_tokens = one.output->output_tokens.size();
  engine_->cancel(one.id);
  engine_->step();
  EXPECT_EQ(one.output->n_ends, 1);
  EXPECT_EQ(one.output->outcome.reason, StopReason::cancelled);
  EXPECT_EQ(one.output->outcome.usage.n_completion, static_cast<int>(n_tokens));
  EXPECT_EQ(engine_->stats().n_waiting, 0);
  run_all(*engine_);
  EXPECT_EQ(one.output->n_ends, 1);
  EXPECT_EQ(pages_in_use(*engine_), 0);
}

TEST_F(PreemptedRequest, that_waits_takes_no_place_in_the_queue) {
  start({.max_sequences = 2, .context = 256, .step_tokens = 64, .queue_limit = 4});
  const Submitted one = submit_and_preempt(request(20, 2));
  std::vector<Submitted> waiting;
  for (uint32_t i = 0; i < 4; ++i) {
    Request each = request(20, 3 + i);
    each.client = fmt::format("client {}", i);
    waiting.push_back(submit(std::move(each)));
  }
  Request refused = request(20, 9);
  refused.sink = std::make_shared<RecordingSink>();
  EXPECT_EQ(engine_->submit(std::move(refused)).error().code, ErrorCode::unavailable);
  for (const Submitted& each : waiting) engine_->cancel(each.id);
  expect_equal_to_solo(one);
}

TEST_F(PreemptedRequest, of_a_draining_engine_still_ends_with_its_whole_output) {
  start();
  const Submitted one = submit_and_preempt(request(20, 2));
  engine_->drain();
  expect_equal_to_solo(one);
  EXPECT_TRUE(engine_->drained());
}

class WaitingRequest : public PreemptedRequest {};

// Its prompt would fit, but the older request would need one of its pages after 13 tokens.
TEST_F(WaitingRequest, is_not_admitted_while_an_older_one_needs_its_pages_to_grow) {
  start();
  Request older = request(20, 1);
  older.options.max_tokens = 40;
  const Submitted first = submit(older);
  engine_->step();
  const Submitted second = submit(request(7 * kPageTokens, 2));
  while (first.output->n_ends == 0) engine_->step();
  EXPECT_EQ(engine_->stats().n_preempted, 0u);
  EXPECT_EQ(second.output->last_progress.n_total, 0);
  expect_equal_to_solo(second);
}

// The default context is one of which four fit.
TEST(Admission, sixteen_requests_without_a_token_limit_run_at_the_same_time_in_a_cache_of_four_contexts) {
  const std::unique_ptr<Engine> engine =
      make_engine({.name = "qwen3-q8_0"}, {.max_sequences = 16, .step_tokens = 64, .cache_bytes = 1 << 20});
  ASSERT_LT(engine->stats().pages[0].n_total, 5 * engine->limits().context / kPageTokens);
  std::vector<std::shared_ptr<RecordingSink>> all;
  for (uint32_t i = 0; i < 16; ++i) {
    all.push_back(submit(*engine, {.prompt = random_tokens(engine->tokenizer(), 20, i), .options = greedy(0)}));
  }
  while (engine->stats().n_decoding < 16) ASSERT_TRUE(engine->step());
  for (const auto& output : all) EXPECT_EQ(output->n_ends, 0);
}

}  // namespace
}  // namespace zinc
