// The life of requests: rejection, cancellation, failure, draining, many threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "engine/engine_loop.h"
#include "engine/model_runner.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr const char* kModel = "qwen3-q8_0";

std::unique_ptr<Engine> small_engine() {
  return make_engine({.name = kModel}, {.max_sequences = 3, .context = 256, .step_tokens = 32, .queue_limit = 4});
}

Request simple(const Engine& engine, size_t n_prompt, int max_tokens, uint32_t seed = 1) {
  return {.prompt = random_tokens(engine.tokenizer(), n_prompt, seed), .options = greedy(max_tokens)};
}

Error rejection(Engine& engine, Request request) {
  request.sink = std::make_shared<RecordingSink>();
  const Result<RequestId> id = engine.submit(std::move(request));
  EXPECT_FALSE(id.ok());
  return id.ok() ? Error{} : id.error();
}

TEST(EngineRequests, a_prompt_longer_than_the_context_is_rejected_with_both_numbers) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Error error = rejection(*engine, simple(*engine, 257, 5));
  EXPECT_EQ(error.code, ErrorCode::context_exceeded);
  EXPECT_NE(error.message.find("257"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("256"), std::string::npos) << error.message;
}

TEST(EngineRequests, invalid_requests_are_rejected_before_anything_runs) {
  const std::unique_ptr<Engine> engine = small_engine();
  EXPECT_EQ(rejection(*engine, {}).code, ErrorCode::invalid_input);
  Request request = simple(*engine, 5, 5);
  request.prompt[3] = engine->limits().n_vocab;
  EXPECT_EQ(rejection(*engine, request).code, ErrorCode::invalid_input);
  request = simple(*engine, 5, 5);
  request.options.sampling.temperature = 100;
  EXPECT_EQ(rejection(*engine, request).code, ErrorCode::invalid_input);
  request = simple(*engine, 5, 5);
  request.options.thinking.forced_end = {-1};
  EXPECT_EQ(rejection(*engine, request).code, ErrorCode::invalid_input);
  EXPECT_FALSE(engine->step());
}

TEST(EngineRequests, a_full_queue_rejects_until_a_request_is_admitted) {
  const std::unique_ptr<Engine> engine = small_engine();
  std::vector<std::shared_ptr<RecordingSink>> output;
  const auto from = [&](const std::string& client, uint32_t seed) {
    Request request = simple(*engine, 20, 5, seed);
    request.client = client;
    return request;
  };
  for (uint32_t i = 0; i < 6; ++i)
    output.push_back(submit(*engine, from("a", i)));  // 3 sequence slots, 3 of 4 places in the queue
  EXPECT_NE(rejection(*engine, from("a", 6)).message.find("limit for one client"), std::string::npos);
  output.push_back(submit(*engine, from("b", 7)));
  const Error error = rejection(*engine, from("c", 8));
  EXPECT_EQ(error.code, ErrorCode::unavailable);
  EXPECT_EQ(engine->stats().n_rejected, 2u);
  EXPECT_EQ(engine->stats().n_waiting, 7);
  engine->step();
  EXPECT_EQ(engine->stats().n_waiting, 4);
  EXPECT_EQ(rejection(*engine, from("c", 8)).code, ErrorCode::unavailable);
  while (engine->stats().n_waiting == 4) engine->step();
  output.push_back(submit(*engine, from("c", 9)));
  run_all(*engine);
  for (const std::shared_ptr<RecordingSink>& one : output) EXPECT_EQ(one->output_tokens.size(), 5u);
}

// The prompt's log-probabilities from all its logits.
std::vector<float> scores_alone(const Engine& engine, const std::vector<TokenId>& prompt) {
  ModelRunner runner = std::move(ModelRunner::create(engine.model(), {.context = 256, .all_logits = true}).value());
  std::vector<float> logits = runner.feed_with_all_logits(prompt).value();
  const size_t n_vocab = logits.size() / prompt.size();
  Sampler sampler;
  std::vector<float> out;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    Logprobs logprobs;
    sampler.logprobs(std::span(logits).subspan(i * n_vocab, n_vocab), prompt[i + 1], 0, logprobs);
    out.push_back(logprobs.chosen);
  }
  return out;
}

TEST(EngineRequests, prompt_logprobs_are_those_of_the_prompt_computed_alone) {
  const std::unique_ptr<Engine> engine = small_engine();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> outputs;
  for (const uint32_t seed : {1u, 1u, 2u, 3u}) {  // the second has a cached prefix; the last decodes meanwhile
    Request request = simple(*engine, 50 + seed, 4, seed);
    if (seed < 3) request.options.n_prompt_logprobs = 2;
    if (seed == 2) request.options.prompt_only = true;
    outputs.push_back(submit(*engine, request));
    requests.push_back(std::move(request));
    if (seed == 1) run_all(*engine);
  }
  run_all(*engine);
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<OutputToken>& scored = outputs[i]->outcome.prompt_tokens;
    const std::vector<float> expected = scores_alone(*engine, requests[i].prompt);
    ASSERT_EQ(scored.size(), requests[i].prompt.size());
    EXPECT_TRUE(std::isnan(scored[0].logprob));
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_EQ(scored[t + 1].id, requests[i].prompt[t + 1]);
      EXPECT_NEAR(scored[t + 1].logprob, expected[t], 2e-3) << i << " " << t;
      EXPECT_EQ(scored[t + 1].top.size(), 2u);
    }
  }
  EXPECT_EQ(outputs[0]->output_tokens.size(), 4u);
  EXPECT_TRUE(same_output(*outputs[0], *outputs[1]));
  EXPECT_TRUE(outputs[2]->output_tokens.empty());
  EXPECT_EQ(outputs[2]->outcome.reason, StopReason::max_tokens);
  EXPECT_TRUE(outputs[3]->outcome.prompt_tokens.empty());
}

TEST(EngineRequests, an_output_ends_at_the_end_of_the_context) {
  const std::unique_ptr<Engine> engine = small_engine();
  const std::shared_ptr<RecordingSink> limited = submit(*engine, simple(*engine, 250, 1000));
  const std::shared_ptr<RecordingSink> unlimited = submit(*engine, simple(*engine, 250, 0, 2));
  const std::shared_ptr<RecordingSink> whole = submit(*engine, simple(*engine, 256, 5, 3));
  run_all(*engine);
  EXPECT_EQ(limited->outcome.reason, StopReason::context_full);
  EXPECT_EQ(limited->output_tokens.size(), 7u);  // the last token is not fed
  EXPECT_EQ(unlimited->output_tokens.size(), 7u);
  EXPECT_EQ(whole->output_tokens.size(), 1u);
}

TEST(EngineRequests, a_stop_string_is_reported_and_never_emitted) {
  const std::unique_ptr<Engine> engine = small_engine();
  Request request = simple(*engine, 20, 40);
  const std::shared_ptr<RecordingSink> whole = submit(*engine, request);
  run_all(*engine);
  ASSERT_GT(whole->text.size(), 12u);
  request.options.stop = {"never emitted", whole->text.substr(8, 3)};
  const std::shared_ptr<RecordingSink> cut = submit(*engine, request);
  run_all(*engine);
  EXPECT_EQ(cut->outcome.reason, StopReason::stop_string);
  EXPECT_EQ(cut->outcome.stop_string, request.options.stop[1]);
  EXPECT_EQ(cut->text, whole->text.substr(0, whole->text.find(request.options.stop[1])));
}

// While waiting, during prefill, during decode.
TEST(EngineRequests, a_cancelled_request_releases_everything_before_the_next_step) {
  const std::unique_ptr<Engine> engine = small_engine();
  const auto cancel_after = [&](int n_steps, size_t n_prompt) {
    auto output = std::make_shared<RecordingSink>();
    Request request = simple(*engine, n_prompt, 200);
    request.sink = output;
    const RequestId id = engine->submit(std::move(request)).value();
    for (int i = 0; i < n_steps; ++i) engine->step();
    engine->cancel(id);
    EXPECT_FALSE(engine->step());
    EXPECT_EQ(output->n_ends, 1);
    EXPECT_EQ(output->outcome.reason, StopReason::cancelled);
    EXPECT_EQ(pages_in_use(*engine), 0);
    engine->cancel(id);  // again, and an unknown id
    engine->cancel(4711);
    EXPECT_FALSE(engine->step());
    EXPECT_EQ(output->n_ends, 1);
    return output;
  };
  EXPECT_EQ(cancel_after(0, 50)->last_progress.n_total, 0);
  const std::shared_ptr<RecordingSink> reading = cancel_after(1, 50);
  EXPECT_EQ(reading->last_progress.n_done, 32);
  EXPECT_EQ(reading->output_tokens.size(), 0u);
  EXPECT_GT(cancel_after(5, 50)->output_tokens.size(), 2u);
  EXPECT_EQ(engine->stats().n_ended[static_cast<size_t>(StopReason::cancelled)], 3u);
}

TEST(EngineRequests, the_prefix_of_a_cancelled_request_is_reused) {
  const std::unique_ptr<Engine> engine = small_engine();
  Request request = simple(*engine, 100, 5);
  auto output = std::make_shared<RecordingSink>();
  request.sink = output;
  const RequestId id = engine->submit(request).value();
  engine->step();
  engine->step();
  engine->cancel(id);
  const std::shared_ptr<RecordingSink> again = submit(*engine, request);
  run_all(*engine);
  EXPECT_EQ(again->outcome.usage.n_cached, 64);
}

TEST(EngineRequests, a_draining_engine_finishes_its_requests_and_accepts_no_more) {
  const std::unique_ptr<Engine> engine = small_engine();
  const std::shared_ptr<RecordingSink> output = submit(*engine, simple(*engine, 20, 5));
  engine->drain();
  EXPECT_EQ(rejection(*engine, simple(*engine, 20, 5)).code, ErrorCode::unavailable);
  EXPECT_FALSE(engine->drained());
  run_all(*engine);
  EXPECT_TRUE(engine->drained());
  EXPECT_EQ(output->outcome.reason, StopReason::max_tokens);
}

TEST(EngineRequests, a_destroyed_engine_ends_the_remaining_requests) {
  std::shared_ptr<RecordingSink> running, waiting;
  {
    const std::unique_ptr<Engine> engine = small_engine();
    running = submit(*engine, simple(*engine, 20, 50));
    engine->step();
    waiting = submit(*engine, simple(*engine, 20, 50));
  }
  EXPECT_EQ(running->n_ends, 1);
  EXPECT_EQ(waiting->n_ends, 1);
  EXPECT_EQ(waiting->outcome.reason, StopReason::cancelled);
}

TEST(EngineRequests, progress_starts_with_the_cached_tokens_and_ends_with_all) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Request request = simple(*engine, 100, 2);
  submit(*engine, request);
  run_all(*engine);
  struct Watch : RecordingSink {
    void progress(const PromptProgress& at) override { seen.push_back(at.n_done); }
    std::vector<int> seen;
  };
  const auto watch = std::make_shared<Watch>();
  Request longer = request;
  const std::vector<TokenId> more = random_tokens(engine->tokenizer(), 50, 3);
  longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
  longer.sink = watch;
  ASSERT_TRUE(engine->submit(longer).ok());
  run_all(*engine);
  EXPECT_EQ(watch->seen, (std::vector<int>{100, 132, 150}));
}

TEST(EngineRequests, an_embedding_has_length_1_and_does_not_depend_on_the_batch) {
  const std::unique_ptr<Engine> engine = small_engine();
  for (const Pooling pooling : {Pooling::mean, Pooling::last}) {
    Request request = simple(*engine, 70, 0);
    request.embedding = pooling;
    const std::shared_ptr<RecordingSink> alone = submit(*engine, request);
    run_all(*engine);
    const std::vector<float>& vector = alone->outcome.embedding;
    ASSERT_EQ(vector.size(), static_cast<size_t>(engine->limits().embedding_dim));
    EXPECT_NEAR(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0), 1.0, 1e-5);
    EXPECT_EQ(alone->outcome.usage.n_completion, 0);
    submit(*engine, simple(*engine, 90, 20, 5));
    const std::shared_ptr<RecordingSink> again = submit(*engine, request);
    run_all(*engine);
    EXPECT_EQ(again->outcome.embedding, vector);
    request.prompt[10] ^= 1;
    const std::shared_ptr<RecordingSink> other = submit(*engine, request);
    run_all(*engine);
    EXPECT_NE(other->outcome.embedding, vector);
  }
}

TEST(EngineRequests, no_request_waits_for_an_embedding_that_recomputes_a_cached_prefix) {
  const std::unique_ptr<Engine> engine = small_engine();
  const auto after_the_same = [&](uint32_t seed) {
    Request request = simple(*engine, 100, 1);
    const std::vector<TokenId> own = random_tokens(engine->tokenizer(), 60, seed);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    return request;
  };
  submit(*engine, after_the_same(2));
  run_all(*engine);
  Request embedding = after_the_same(3);
  embedding.embedding = Pooling::mean;
  const std::shared_ptr<RecordingSink> vector = submit(*engine, embedding);
  engine->step();
  const std::shared_ptr<RecordingSink> text = submit(*engine, after_the_same(4));
  engine->step();
  EXPECT_EQ(vector->n_ends, 0);
  EXPECT_GE(text->last_progress.n_done, 100);
  run_all(*engine);
}

TEST(EngineRequests, prefixes_are_not_shared_between_namespaces) {
  const std::unique_ptr<Engine> engine = small_engine();
  const auto from = [&](CacheNamespace owner) {
    Request request = simple(*engine, 100, 1);
    request.cache_namespace = owner;
    return submit(*engine, request);
  };
  const std::shared_ptr<RecordingSink> one = from(1);
  engine->step();
  const std::shared_ptr<RecordingSink> two = from(2);
  engine->step();
  EXPECT_GT(two->last_progress.n_total, 0) << "waited for a prefix that it cannot use";
  run_all(*engine);
  EXPECT_EQ(two->outcome.usage.n_common, 0);
  const std::shared_ptr<RecordingSink> again = from(1);
  run_all(*engine);
  EXPECT_EQ(again->outcome.usage.n_cached, 99);
  EXPECT_TRUE(same_output(*one, *two));
}

TEST(EngineRequests, a_client_with_one_request_does_not_wait_for_another_clients_twenty) {
  const std::unique_ptr<Engine> engine =
      make_engine({.name = kModel}, {.max_sequences = 2, .context = 128, .step_tokens = 64, .queue_limit = 64});
  std::vector<std::shared_ptr<RecordingSink>> many;
  for (uint32_t i = 0; i < 20; ++i) {
    Request request = simple(*engine, 30, 10, i);
    request.client = "many";
    many.push_back(submit(*engine, request));
  }
  engine->step();
  Request request = simple(*engine, 30, 10, 99);
  request.client = "one";
  const std::shared_ptr<RecordingSink> one = submit(*engine, request);
  while (one->n_ends == 0) engine->step();
  int n_before = 0;
  for (const std::shared_ptr<RecordingSink>& output : many) n_before += output->n_ends;
  EXPECT_LE(n_before, 3);
  run_all(*engine);
}

// A device that is lost at a given step.
class FailingPlan final : public Plan {
 public:
  FailingPlan(std::unique_ptr<Plan> plan, int n_good) : plan_(std::move(plan)), n_good_(n_good) {}
  size_t device_bytes() const override { return plan_->device_bytes(); }
  void start(const StepInputs& inputs) override { plan_->start(inputs); }
  Result<StepOutput> wait() override {
    Result<StepOutput> output = plan_->wait();
    if (n_good_-- == 0) return fail(ErrorCode::device_lost, "the device is lost");
    return output;
  }
  std::span<const float> value(Value v) const override { return plan_->value(v); }

 private:
  std::unique_ptr<Plan> plan_;
  int n_good_;
};

TEST(EngineRequests, a_failed_step_fails_all_its_requests_and_does_not_corrupt_the_cache) {
  const ModelInstance model = load_model({.name = "qwen35moe-q8_0"});
  const Tokenizer tokenizer = std::move(Tokenizer::load(model.file()).value());
  const CacheSizes sizes{.n_pages = {40}, .n_slots = 8, .kv_format = &model.kv_format()};
  std::unique_ptr<KvCache> cache = std::move(
      KvCache::create(model.backend(), model.model().caches, {.sizes = sizes, .max_chunk_tokens = 64}).value());
  const Bucket bucket{.max_tokens = 68, .max_seqs = 4, .max_outputs = 4};
  std::unique_ptr<Plan> plan =
      std::move(model.backend().compile(model.model().graph, model.weights(), cache->memory(), bucket).value());
  SubmissionQueue submission_queue(10, 4);
  EngineLoop loop(submission_queue, std::move(cache), std::make_unique<FailingPlan>(std::move(plan), 3),
                  {.max_sequences = 4,
                   .n_vocab = tokenizer.n_vocab(),
                   .scheduler = {.step_tokens = 64, .max_decode_slowdown = 2.2}});
  const auto put = [&](uint32_t seed) {
    const auto output = std::make_shared<RecordingSink>();
    Request request{.prompt = random_tokens(tokenizer, 30, seed), .options = greedy(10)};
    request.sink = output;
    auto state = std::make_unique<RequestState>(std::move(request), tokenizer);
    state->max_length = 40;
    EXPECT_TRUE(submission_queue.put(std::move(state)).ok());
    return output;
  };
  const std::vector<std::shared_ptr<RecordingSink>> lost = {put(1), put(2)};
  while (loop.step()) {
  }
  for (const std::shared_ptr<RecordingSink>& output : lost) {
    EXPECT_EQ(output->n_ends, 1);
    EXPECT_EQ(output->outcome.reason, StopReason::failed);
    ASSERT_TRUE(output->outcome.error.has_value());
    EXPECT_EQ(output->outcome.error->code, ErrorCode::device_lost);
  }
  for (const PageUse& use : loop.stats().pages) EXPECT_EQ(use.n_in_use, 0);
  const std::shared_ptr<RecordingSink> after = put(1);
  while (loop.step()) {
  }
  Request same{.prompt = random_tokens(tokenizer, 30, 1), .options = greedy(10)};
  EXPECT_TRUE(same_output(*after, generate_alone(model, same, 64)));
}

// Many threads submit and cancel while the engine runs; under ThreadSanitizer this also checks the locks.
TEST(EngineRequests, every_request_of_many_threads_ends_exactly_once) {
  const std::unique_ptr<Engine> engine = make_engine(
      {.name = kModel, .n_threads = 2}, {.max_sequences = 8, .context = 256, .step_tokens = 32, .queue_limit = 1000});
  struct Counter : RequestSink {
    void progress(const PromptProgress&) override {}
    void tokens(std::string_view, std::span<const OutputToken>) override { ++n_tokens; }
    void end(const Outcome&) override { ++n_ends; }
    std::atomic<int> n_tokens = 0, n_ends = 0;
  };
  std::jthread server([&](std::stop_token stop) { engine->run(stop); });
  std::vector<std::shared_ptr<Counter>> sinks(60);
  std::vector<std::thread> clients;
  for (size_t c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      for (size_t i = c * 10; i < (c + 1) * 10; ++i) {
        sinks[i] = std::make_shared<Counter>();
        Request request =
            simple(*engine, 1 + random() % 90, 1 + static_cast<int>(random() % 20), static_cast<uint32_t>(i));
        request.sink = sinks[i];
        request.client = fmt::format("{}", c);
        const RequestId id = engine->submit(std::move(request)).value();
        if (random() % 3 == 0) engine->cancel(id);
        (void)engine->stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  engine->drain();
  while (!engine->drained()) std::this_thread::yield();
  server.request_stop();
  server.join();
  for (const std::shared_ptr<Counter>& sink : sinks) EXPECT_EQ(sink->n_ends, 1);
  EXPECT_EQ(pages_in_use(*engine), 0);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(std::accumulate(stats.n_ended.begin(), stats.n_ended.end(), uint64_t{0}), 60u);
  EXPECT_EQ(stats.n_waiting + stats.n_prefilling + stats.n_decoding, 0);
}

}  // namespace
}  // namespace zinc
