// Speculative decoding on every available device: outputs with drafts that are right, wrong or partly right are bit for
// bit those without drafts, whatever the sampling, and nothing leaks. Drafts come from a drafter that knows the output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "constrain/constraint_cache.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "engine/forced_drafter.h"
#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

constexpr int kContext = 128;

struct Subject {
  const BackendInfo* backend;
  std::string_view model;
  SplitMode split_mode = SplitMode::automatic;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model << " on " << subject.backend->name; }

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo* backend : available_backends()) {
    for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "qwen35-f16"}) all.push_back({backend, model});
  }
  all.push_back({split_devices(), "qwen35-f16"});
  all.push_back({split_devices(), "qwen35-f16", SplitMode::tensor});
  return all;
}

class SpeculationTest : public testing::TestWithParam<Subject> {
 protected:
  ServedFile file() const {
    return {.name = GetParam().model,
            .backend = GetParam().backend->name,
            .placement = {.split_mode = GetParam().split_mode}};
  }
  EngineOptions options(SpeculationMode mode) const {
    return {.max_sequences = 3, .context = kContext, .step_tokens = 24, .speculation = {.mode = mode}};
  }
  using Outputs = std::vector<std::shared_ptr<RecordingSink>>;
  static Outputs run(Engine& engine, const std::vector<Request>& requests) {
    Outputs outputs;
    for (const Request& request : requests) outputs.push_back(submit(engine, request));
    run_all(engine);
    EXPECT_EQ(pages_in_use(engine), 0);
    return outputs;
  }
  static std::vector<std::vector<TokenId>> sequences(const std::vector<Request>& requests, const Outputs& outputs) {
    std::vector<std::vector<TokenId>> all;
    for (size_t i = 0; i < requests.size(); ++i) {
      all.push_back(requests[i].prompt);
      for (const OutputToken& token : outputs[i]->output_tokens) all.back().push_back(token.id);
    }
    return all;
  }
  Result<std::unique_ptr<Engine>> try_drafting_engine(std::vector<std::vector<TokenId>> known, double acceptance,
                                                      int n_vocab, EngineOptions with) const {
    with.speculation.mode = SpeculationMode::draft;
    with.speculation.ignores_cost = true;
    with.speculation.replace_drafter = [&](std::unique_ptr<Drafter>) {
      return std::make_unique<ForcedDrafter>(
          nullptr, std::make_shared<ForcedDrafts>(ForcedDrafts{std::move(known), acceptance, n_vocab}));
    };
    return Engine::create(load_model(file()), with);
  }
  std::unique_ptr<Engine> drafting_engine(std::vector<std::vector<TokenId>> known, double acceptance, int n_vocab,
                                          EngineOptions with) const {
    return std::move(try_drafting_engine(std::move(known), acceptance, n_vocab, std::move(with)).value());
  }
  // Runs the requests with drafts, and compares with their outputs without.
  void expect_same_outputs(const std::vector<Request>& requests, std::initializer_list<double> acceptances) const {
    const Outputs expected = run(*plain_, requests);
    for (const double acceptance : acceptances) {
      SCOPED_TRACE(fmt::format("acceptance {}", acceptance));
      const std::unique_ptr<Engine> engine = drafting_engine(sequences(requests, expected), acceptance,
                                                             plain_->limits().n_vocab, options(SpeculationMode::off));
      const Outputs outputs = run(*engine, requests);
      const SpeculationStats stats = engine->stats().speculation;
      EXPECT_GT(stats.n_drafted_tokens, 0u);
      if (acceptance == 1) {
        EXPECT_GT(stats.n_accepted_tokens, stats.n_drafted_tokens / 3);
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(outputs[i]->n_ends, 1);
        EXPECT_EQ(outputs[i]->n_after_end, 0);
        EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "request " << i;
        EXPECT_EQ(outputs[i]->outcome.usage.n_completion, expected[i]->outcome.usage.n_completion);
      }
    }
  }
  std::vector<TokenId> tokens(size_t n, uint32_t seed) const { return random_tokens(plain_->tokenizer(), n, seed); }

  const std::unique_ptr<Engine> plain_ = make_engine(file(), options(SpeculationMode::off));
};

TEST_P(SpeculationTest, greedy_and_sampled_outputs_are_those_without_drafts) {
  std::vector<Request> requests = {{.prompt = tokens(20, 1), .options = greedy(30)},
                                   {.prompt = tokens(5, 2), .options = greedy(17)},
                                   {.prompt = tokens(33, 3), .options = greedy(40)}};
  for (Request& request : requests) request.options.n_top_logprobs = -1;
  requests[1].options.sampling = {.temperature = 1, .top_p = 0.9f, .seed = 7};
  requests[2].options.sampling = {.temperature = 0.7f, .top_k = 20, .seed = 8};
  requests.push_back(requests[1]);  // a second output of the same request
  requests[3].options.stream = 1;
  expect_same_outputs(requests, {0, 0.7, 1});
}

TEST_P(SpeculationTest, log_probabilities_penalties_stop_strings_and_limits_are_those_without_drafts) {
  std::vector<Request> requests(6, {.prompt = tokens(12, 4), .options = greedy(20)});
  requests[1].options.sampling = {.temperature = 1, .repeat_penalty = 1.3f, .presence_penalty = 0.5f, .seed = 1};
  requests[2].options.sampling = {.temperature = 1, .dry_multiplier = 0.8f, .seed = 2};
  requests[3].options.max_tokens = 0;  // until the context is full
  requests[4].options.thinking = {
      .open_tag = "<think>", .close_tag = "</think>", .starts_open = true, .max_tokens = 5, .forced_end = {7, 8, 9}};
  requests[5].options.min_tokens = 10;
  requests[5].options.ignore_eos = false;
  const std::string text = run(*plain_, {requests[0]})[0]->text;
  requests[0].options.stop = {text.substr(text.size() / 2, 3)};
  expect_same_outputs(requests, {0.7, 1});
}

TEST_P(SpeculationTest, constrained_and_biased_outputs_are_those_without_drafts) {
  ConstraintCache constraints(plain_->tokenizer());
  std::vector<Request> requests(5, {.prompt = tokens(12, 6), .options = greedy(40)});
  requests[0].options.constraint.grammar = constraints.get("object", json_object_grammar).value();
  requests[1].options.constraint.grammar =
      constraints.get("ab", [] { return parse_gbnf("root ::= (\"a\" | \"b\")+"); }).value();
  requests[1].options.sampling = {.temperature = 1, .seed = 3};
  requests[2].options.sampling.logit_bias = {{.token = 7, .bias = 4}, {.token = 9, .bias = -100}};
  auto allowed = std::make_shared<TokenSet>(static_cast<size_t>(plain_->limits().n_vocab));
  for (TokenId id = 5; id < 40; ++id) allowed->insert(id);
  requests[3].options.allowed_tokens = allowed;
  requests[3].options.sampling = {.temperature = 1, .seed = 4};
  expect_same_outputs(requests, {0.5, 1});
}

TEST_P(SpeculationTest, requests_that_are_preempted_get_the_same_output) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back({.prompt = tokens(30, i), .options = greedy(90)});
  const Outputs expected = run(*plain_, requests);
  EngineOptions small = options(SpeculationMode::off);
  std::unique_ptr<Engine> engine;  // with the smallest cache that is accepted
  for (size_t eighths = 2; !engine && eighths < 80; ++eighths) {
    small.cache_bytes = plain_->limits().cache_bytes * eighths / 8;
    Result<std::unique_ptr<Engine>> smaller =
        try_drafting_engine(sequences(requests, expected), 0.7, plain_->limits().n_vocab, small);
    if (smaller.ok()) engine = std::move(smaller.value());
  }
  ASSERT_TRUE(engine);
  const Outputs outputs = run(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "request " << i;
  EXPECT_GT(engine->stats().n_preempted, 0u);
  EXPECT_GT(engine->stats().speculation.n_accepted_tokens, 0u);
}

TEST_P(SpeculationTest, a_prompt_is_not_delayed_by_drafts_of_other_requests) {
  std::vector<Request> requests = {{.prompt = tokens(5, 1), .options = greedy(110)},
                                   {.prompt = tokens(6, 2), .options = greedy(110)}};
  const Outputs expected = run(*plain_, requests);
  const std::unique_ptr<Engine> engine =
      drafting_engine(sequences(requests, expected), 1, plain_->limits().n_vocab, options(SpeculationMode::off));
  Outputs outputs;
  for (const Request& request : requests) outputs.push_back(submit(*engine, request));
  while (outputs[0]->output_tokens.size() < 10) ASSERT_TRUE(engine->step());
  const std::shared_ptr<RecordingSink> late = submit(*engine, {.prompt = tokens(100, 3), .options = greedy(1)});
  const size_t n_before = outputs[0]->output_tokens.size();
  while (late->output_tokens.empty()) ASSERT_TRUE(engine->step());
  EXPECT_LT(outputs[0]->output_tokens.size(), n_before + 40);
  run_all(*engine);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "request " << i;
}

TEST_P(SpeculationTest, a_predicted_output_is_drafted_and_counted) {
  Request request{.prompt = tokens(12, 5), .options = greedy(40)};
  const Outputs expected = run(*plain_, {request});
  for (const OutputToken& token : expected[0]->output_tokens) request.prediction.push_back(token.id);
  request.prediction[20] = (request.prediction[20] + 1) % plain_->limits().n_vocab;
  EngineOptions with = options(SpeculationMode::ngram);
  with.speculation.ignores_cost = true;
  const std::unique_ptr<Engine> engine = make_engine(file(), with);
  const Outputs outputs = run(*engine, {request});
  EXPECT_TRUE(same_output(*outputs[0], *expected[0]));
  const Usage& usage = outputs[0]->outcome.usage;
  EXPECT_GE(usage.n_draft_accepted, 28);
  EXPECT_GE(usage.n_draft_rejected, 1);
  EXPECT_EQ(static_cast<uint64_t>(usage.n_draft_accepted), engine->stats().speculation.n_accepted_tokens);
  EXPECT_LT(engine->stats().n_steps, 16u);
}

TEST_P(SpeculationTest, a_cancelled_request_leaves_pages_and_prefix_cache_correct) {
  Request kept{.prompt = tokens(20, 1), .options = greedy(24)}, cut{.prompt = tokens(30, 2), .options = greedy(40)};
  const Outputs expected = run(*plain_, {kept, cut});
  const std::unique_ptr<Engine> engine =
      drafting_engine(sequences({kept, cut}, expected), 0.6, plain_->limits().n_vocab, options(SpeculationMode::off));
  const std::shared_ptr<RecordingSink> other = submit(*engine, kept);
  const auto cancelled = std::make_shared<RecordingSink>();
  cut.sink = cancelled;
  const RequestId id = engine->submit(cut).value();
  while (cancelled->output_tokens.size() < 9) ASSERT_TRUE(engine->step());
  engine->cancel(id);
  run_all(*engine);
  EXPECT_EQ(pages_in_use(*engine), 0);
  EXPECT_TRUE(same_output(*other, *expected[0]));
  Request resumed = cut;  // continues from the prefix cache
  for (const OutputToken& token : cancelled->output_tokens) resumed.prompt.push_back(token.id);
  resumed.options.max_tokens = 40 - static_cast<int>(cancelled->output_tokens.size());
  const std::shared_ptr<RecordingSink> output = submit(*engine, resumed);
  run_all(*engine);
  std::vector<TokenId> ids, expected_ids;
  for (const OutputToken& token : output->output_tokens) ids.push_back(token.id);
  for (const OutputToken& token : expected[1]->output_tokens) expected_ids.push_back(token.id);
  expected_ids.erase(expected_ids.begin(), expected_ids.begin() + std::ssize(cancelled->output_tokens));
  EXPECT_EQ(ids, expected_ids);
}

INSTANTIATE_TEST_SUITE_P(, SpeculationTest, testing::ValuesIn(subjects()), [](const auto& info) {
  std::string name = fmt::format("{}_{}{}", info.param.backend->name, info.param.model,
                                 info.param.split_mode == SplitMode::tensor ? "_tensor" : "");
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ':' || c == ','; }, '_');
  return name;
});

std::shared_ptr<RecordingSink> submit_and_run(Engine& engine, const Request& request) {
  const std::shared_ptr<RecordingSink> output = submit(engine, request);
  run_all(engine);
  return output;
}

Request plain_request(const Engine& engine, size_t n_prompt, int max_tokens, uint32_t seed) {
  Request request{.prompt = random_tokens(engine.tokenizer(), n_prompt, seed), .options = greedy(max_tokens)};
  request.options.n_top_logprobs = -1;
  return request;
}

struct ModelDraft {
  std::string_view target;
  SpeculationMode mode;
};

// The target model is its own draft model: every greedy draft is right. The MTP block of a random model is not.
TEST(SpeculationDrafters, a_draft_model_and_an_mtp_block_do_not_change_outputs) {
  for (const auto [target, mode] :
       {ModelDraft{"qwen3-q8_0", SpeculationMode::draft}, ModelDraft{"gemma3-f16", SpeculationMode::draft},
        ModelDraft{"qwen35moe-q8_0", SpeculationMode::mtp}}) {
    SCOPED_TRACE(target);
    const ServedFile file{.name = target, .draft = mode == SpeculationMode::mtp ? Draft::load : Draft::skip};
    EngineOptions options{.max_sequences = 3, .context = 256, .step_tokens = 48};
    options.speculation = {.mode = SpeculationMode::off};
    const std::unique_ptr<Engine> plain = make_engine({.name = target}, options);
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 6; ++i) requests.push_back(plain_request(*plain, 5 + 23 * i, 40, i));
    requests[2].options.sampling = {.temperature = 1, .seed = 5};
    requests[4].prompt = requests[3].prompt;  // a prefix cache hit
    std::vector<std::shared_ptr<RecordingSink>> expected, outputs;
    for (const Request& request : requests) expected.push_back(submit(*plain, request));
    run_all(*plain);
    options.speculation.mode = mode;
    options.speculation.ignores_cost = true;
    if (mode == SpeculationMode::draft) options.speculation.draft_model = model_path(target);
    const std::unique_ptr<Engine> engine = make_engine(file, options);
    for (const Request& request : requests) outputs.push_back(submit(*engine, request));
    run_all(*engine);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(same_output(*outputs[i], *expected[i])) << "request " << i;
    }
    EXPECT_EQ(pages_in_use(*engine), 0);
    const SpeculationStats stats = engine->stats().speculation;
    EXPECT_GT(stats.n_drafted_tokens, 0u);
    EXPECT_EQ(stats.error, "");
    for (size_t i = 0; mode == SpeculationMode::draft && i < requests.size(); ++i) {
      if (requests[i].options.sampling.temperature > 0) continue;
      EXPECT_EQ(outputs[i]->outcome.usage.n_draft_rejected, 0) << "request " << i;
      EXPECT_GT(outputs[i]->outcome.usage.n_draft_accepted, 20) << "request " << i;
    }
  }
}

TEST(SpeculationDrafters, a_model_without_an_mtp_block_and_one_of_another_vocabulary_are_rejected) {
  const auto error = [](std::string_view target, SpeculationOptions speculation) {
    const Result<std::unique_ptr<Engine>> engine =
        Engine::create(load_model({.name = target}), {.context = 64, .speculation = std::move(speculation)});
    return engine.ok() ? "" : engine.error().message;
  };
  EXPECT_NE(error("qwen3-q8_0", {.mode = SpeculationMode::mtp}).find("has no MTP block"), std::string::npos);
  EXPECT_NE(error("qwen3-q8_0", {.mode = SpeculationMode::draft, .draft_model = model_path("gemma3-f16")}), "");
}

TEST(SpeculationDrafters, a_request_may_turn_drafts_off_but_not_ask_for_a_drafter_that_is_not_loaded) {
  EngineOptions options{.max_sequences = 1, .context = 128};
  options.speculation = {.mode = SpeculationMode::ngram, .ignores_cost = true};
  const std::unique_ptr<Engine> engine = make_engine({.name = "qwen3-q8_0"}, options);
  Request request = plain_request(*engine, 20, 60, 1);
  request.prediction = request.prompt;
  request.speculation = SpeculationMode::off;
  const std::shared_ptr<RecordingSink> output = submit(*engine, request);
  run_all(*engine);
  EXPECT_EQ(engine->stats().speculation.n_drafts, 0u);
  EXPECT_EQ(output->outcome.usage.n_completion, 60);
  request.speculation = SpeculationMode::automatic;
  ASSERT_TRUE(same_output(*submit_and_run(*engine, request), *output));
  EXPECT_GT(engine->stats().speculation.n_drafts, 0u);
  request.speculation = SpeculationMode::draft;
  request.sink = std::make_shared<RecordingSink>();
  const Result<RequestId> rejected = engine->submit(request);
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.error().code, ErrorCode::invalid_input);
  options.speculation.mode = SpeculationMode::off;
  const std::unique_ptr<Engine> without = make_engine({.name = "qwen3-q8_0"}, options);
  request.speculation = SpeculationMode::ngram;
  EXPECT_FALSE(without->submit(request).ok());
  request.speculation = SpeculationMode::off;
  EXPECT_TRUE(without->submit(request).ok());
}

TEST(SpeculationDrafters, a_drafter_that_fails_is_dropped_and_outputs_go_on) {
  struct Failing : Drafter {
    std::string_view name() const override { return "failing"; }
    Status draft(std::span<DraftQuery> queries) override {
      for (DraftQuery& query : queries) query.draft.assign(1, 1);
      return fail(ErrorCode::unavailable, "the device is lost");
    }
  };
  EngineOptions options{.max_sequences = 2, .context = 128};
  options.speculation = {.mode = SpeculationMode::draft,
                         .replace_drafter = [](std::unique_ptr<Drafter>) { return std::make_unique<Failing>(); },
                         .ignores_cost = true};
  const std::unique_ptr<Engine> engine = make_engine({.name = "qwen3-q8_0"}, options);
  const std::unique_ptr<Engine> plain = make_engine(
      {.name = "qwen3-q8_0"}, {.max_sequences = 2, .context = 128, .speculation = {.mode = SpeculationMode::off}});
  const Request request = plain_request(*engine, 20, 30, 1);
  const std::shared_ptr<RecordingSink> output = submit(*engine, request), expected = submit(*plain, request);
  run_all(*engine);
  run_all(*plain);
  EXPECT_TRUE(same_output(*output, *expected));
  EXPECT_EQ(engine->stats().speculation.error, "the device is lost");
  EXPECT_EQ(engine->stats().speculation.n_drafts, 0u);
}

TEST(SpeculationDrafters, the_stats_say_why_steps_have_no_drafts) {
  struct Wrong : Drafter {  // no sequence has this token
    std::string_view name() const override { return "wrong"; }
    Status draft(std::span<DraftQuery> queries) override {
      for (DraftQuery& query : queries) query.draft.assign(static_cast<size_t>(query.max_tokens), 0);
      return ok_status();
    }
  };
  using enum DraftDecision;
  using Steps = std::map<DraftDecision, uint64_t>;
  const auto steps = [](SpeculationMode mode) {
    EngineOptions options{.max_sequences = 1, .context = 256};
    options.speculation.mode = mode;
    if (mode == SpeculationMode::draft) {
      options.speculation.replace_drafter = [](std::unique_ptr<Drafter>) { return std::make_unique<Wrong>(); };
    }
    const std::unique_ptr<Engine> engine = make_engine({.name = "qwen3-q8_0"}, options);
    Request request = plain_request(*engine, 20, 200, 1);
    request.options.sampling.logit_bias = {{.token = 0, .bias = -100}};
    submit_and_run(*engine, request);
    Steps counts;
    for (const DraftDecision decision : {drafted, no_draft, not_paying, unmeasured, off}) {
      counts[decision] = engine->stats().speculation.n_steps[static_cast<size_t>(decision)];
    }
    return counts;
  };
  EXPECT_EQ(steps(SpeculationMode::off),
            (Steps{{drafted, 0}, {no_draft, 0}, {not_paying, 0}, {unmeasured, 0}, {off, 199}}));
  Steps wrong = steps(SpeculationMode::draft);
  EXPECT_GT(wrong[drafted], 0u);
  EXPECT_GT(wrong[unmeasured], 0u);
  EXPECT_GT(wrong[not_paying], 100u);
  EXPECT_EQ(wrong[no_draft], 1u) << "before the last token";
  EXPECT_EQ(wrong[drafted] + wrong[unmeasured] + wrong[not_paying], 198u);
  EXPECT_GT(steps(SpeculationMode::ngram)[no_draft], 10u);
}

// The second token of every output was drafted; it is compared with its exact distribution.
TEST(SpeculationDistribution, drafted_tokens_have_the_distribution_of_the_model) {
  constexpr int kDraws = 100'000, kBatch = 1000;
  const ServedFile file{.name = "qwen3-q8_0"};
  const std::unique_ptr<Engine> plain =
      make_engine(file, {.max_sequences = 1, .context = 32, .speculation = {.mode = SpeculationMode::off}});
  const size_t n_vocab = static_cast<size_t>(plain->limits().n_vocab);
  const auto probabilities = [&](std::vector<TokenId> prompt) {
    Request request{.prompt = std::move(prompt), .options = greedy(1)};
    request.options.n_top_logprobs = static_cast<int>(n_vocab);
    const std::shared_ptr<RecordingSink> output = submit(*plain, request);
    run_all(*plain);
    std::vector<double> p(n_vocab, 0);
    for (const TokenLogprob& top : output->output_tokens[0].top)
      p[static_cast<size_t>(top.token)] = std::exp(top.logprob);
    return p;
  };
  const std::vector<TokenId> prompt = random_tokens(plain->tokenizer(), 4, 1);
  const std::vector<double> first = probabilities(prompt);
  std::vector<double> expected(n_vocab, 0);
  TokenId likeliest = 0;
  for (size_t i = 0; i < n_vocab; ++i) {
    std::vector<TokenId> longer = prompt;
    longer.push_back(static_cast<TokenId>(i));
    const std::vector<double> second = probabilities(longer);
    for (size_t k = 0; k < n_vocab; ++k) expected[k] += first[i] * second[k];
  }
  likeliest = static_cast<TokenId>(std::ranges::max_element(expected) - expected.begin());

  EngineOptions options{.max_sequences = 64, .context = 32, .step_tokens = 64, .queue_limit = 4 * kBatch};
  options.speculation = {.mode = SpeculationMode::draft,
                         .replace_drafter =
                             [&](std::unique_ptr<Drafter>) {
                               struct Always : Drafter {
                                 explicit Always(TokenId drafted) : id(drafted) {}
                                 std::string_view name() const override { return "always"; }
                                 Status draft(std::span<DraftQuery> queries) override {
                                   for (DraftQuery& query : queries) query.draft.assign(1, id);
                                   return ok_status();
                                 }
                                 TokenId id;
                               };
                               return std::make_unique<Always>(likeliest);
                             },
                         .ignores_cost = true};
  const std::unique_ptr<Engine> engine = make_engine(file, options);
  std::vector<double> counts(n_vocab, 0);
  struct CountingSink : RequestSink {
    explicit CountingSink(std::vector<double>& all) : counts(all) {}
    void progress(const PromptProgress&) override {}
    void tokens(std::string_view, std::span<const OutputToken> more) override {
      for (const OutputToken& token : more) {
        if (++n == 2) ++counts[static_cast<size_t>(token.id)];
      }
    }
    void end(const Outcome&) override {}
    std::vector<double>& counts;
    int n = 0;
  };
  for (int i = 0; i < kDraws; ++i) {
    Request request = plain_request(*engine, 4, 3, 1);
    request.options.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
    request.sink = std::make_shared<CountingSink>(counts);
    ASSERT_TRUE(engine->submit(std::move(request)).ok());
    if (i % kBatch == kBatch - 1) run_all(*engine);
  }
  EXPECT_GT(engine->stats().speculation.n_accepted_tokens, 0u);
  EXPECT_LT(engine->stats().speculation.n_accepted_tokens, engine->stats().speculation.n_drafted_tokens);
  // Rare tokens count as one category.
  double chi_square = 0, rare_expected = 0, rare = 0;
  int n_categories = 0;
  for (size_t k = 0; k < n_vocab; ++k) {
    const double wanted = expected[k] * kDraws;
    if (wanted < 10) {
      rare_expected += wanted;
      rare += counts[k];
      continue;
    }
    chi_square += (counts[k] - wanted) * (counts[k] - wanted) / wanted;
    ++n_categories;
  }
  if (rare_expected > 0) chi_square += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
  ASSERT_GT(n_categories, 20);
  const double n = n_categories;  // degrees of freedom; normal approximation, 4 standard deviations
  EXPECT_LT(chi_square, n + 4 * std::sqrt(2 * n));
  EXPECT_GT(chi_square, n - 4 * std::sqrt(2 * n));
}

TEST(SpeculationRounds, ten_thousand_leak_no_page_and_no_state) {
  constexpr int kRequests = 16;
  for (const std::string_view model : {"qwen3-q8_0", "gemma3-f16", "qwen35-f16"}) {
    SCOPED_TRACE(model);
    EngineOptions options{.max_sequences = 4, .context = 256, .step_tokens = 64, .checkpoint_interval = 64};
    options.speculation.mode = SpeculationMode::draft;
    options.speculation.ignores_cost = true;
    const auto known = std::make_shared<ForcedDrafts>(ForcedDrafts{.acceptance = 0.7, .n_vocab = 100});
    options.speculation.replace_drafter = [&](std::unique_ptr<Drafter>) {
      return std::make_unique<ForcedDrafter>(nullptr, known);
    };
    const std::unique_ptr<Engine> engine = make_engine({.name = model}, options);
    const auto run_requests = [&](std::optional<SpeculationMode> mode) {
      std::vector<std::vector<TokenId>> sequences;
      std::vector<std::shared_ptr<RecordingSink>> outputs;
      for (uint32_t seed = 0; seed < kRequests; ++seed) {
        Request request = plain_request(*engine, 20 + seed, 100, seed);
        request.speculation = mode;
        sequences.push_back(request.prompt);
        outputs.push_back(submit(*engine, request));
      }
      run_all(*engine);
      for (size_t i = 0; i < kRequests; ++i) {
        for (const OutputToken& token : outputs[i]->output_tokens) sequences[i].push_back(token.id);
      }
      return sequences;
    };
    known->sequences = run_requests(SpeculationMode::off);
    while (engine->stats().speculation.n_drafts < 10'000) {
      ASSERT_EQ(run_requests({}), known->sequences);
      ASSERT_EQ(pages_in_use(*engine), 0);
      ASSERT_EQ(engine->stats().n_states_in_use, 0);
    }
    EXPECT_GT(engine->stats().speculation.n_accepted_tokens, 10'000u);
    const std::shared_ptr<RecordingSink> longest = submit(*engine, plain_request(*engine, 200, 56, 99));
    run_all(*engine);
    EXPECT_EQ(longest->outcome.reason, StopReason::max_tokens);
  }
}

}  // namespace
}  // namespace zinc
