// Async scheduling: steps that are started before the previous one has ended. Outputs are the same, and requests that
// end or are cancelled in flight leave the cache correct. The device is the CPU backend, wrapped so that its sampled
// tokens stay on the device.
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <numeric>

#include "engine/engine_loop.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr int kChunk = 32, kSequences = 3;
constexpr int kNever = std::numeric_limits<int>::max();

// State of the fake device.
struct Device {
  int most_in_flight = 0;
  int n_pipelined_prompts = 0;        // steps with prompt tokens that were started before the one before had ended
  int n_after_pipelined_prompts = 0;  // steps that were started before one with prompt tokens had ended
  int n_after_long_chunks = 0;        // the same with more than 256 of them
  int n_in_flight = 0;
  int n_waited = 0;
  int fails_at = kNever;  // index of the first step that fails
  bool is_gone = false;   // the plan was destroyed
  int n_left_in_flight = 0;
};

// Samples greedily and stores the token of each slot, like a device that feeds its own tokens. An output is invalidated
// as soon as Plan::start allows.
class DeviceTokenPlan final : public Plan {
 public:
  DeviceTokenPlan(std::unique_ptr<Plan> plan, Device& device) : plan_(std::move(plan)), device_(device) {}
  ~DeviceTokenPlan() override {
    device_.is_gone = true;
    device_.n_left_in_flight = static_cast<int>(in_flight_.size());
  }
  size_t device_bytes() const override { return plan_->device_bytes(); }

  void start(const StepInputs& inputs) override {
    invalidate(returned_);
    tokens_.assign(inputs.tokens.begin(), inputs.tokens.end());
    for (size_t s = 0; s < inputs.slots.size(); ++s) {
      TokenId& first = tokens_[static_cast<size_t>(inputs.seq_begin[s])];
      if (first == kFromDevice) first = last_.at(inputs.slots[s]);
    }
    StepInputs known = inputs;
    known.tokens = tokens_;
    known.sampling = {};
    plan_->start(known);
    const StepOutput output = plan_->wait().value();
    for (size_t r = 0, s = 0; r < inputs.output_rows.size(); ++r) {
      while (inputs.seq_begin[s + 1] <= inputs.output_rows[r]) ++s;
      last_[inputs.slots[s]] = output.sampled[r];
    }
    const bool has_prompt = inputs.tokens.size() > inputs.slots.size();
    if (!in_flight_.empty() && has_prompt) ++device_.n_pipelined_prompts;
    if (!in_flight_.empty() && last_has_prompt_) ++device_.n_after_pipelined_prompts;
    if (!in_flight_.empty() && last_is_long_) ++device_.n_after_long_chunks;
    last_has_prompt_ = has_prompt;
    last_is_long_ = inputs.tokens.size() > 256 + inputs.slots.size();
    in_flight_.push_back(
        {{output.sampled.begin(), output.sampled.end()}, {output.logits.begin(), output.logits.end()}});
    device_.n_in_flight = static_cast<int>(in_flight_.size());
    device_.most_in_flight = std::max(device_.most_in_flight, device_.n_in_flight);
    EXPECT_LE(in_flight_.size(), 2u);
  }

  Result<StepOutput> wait() override {
    invalidate(returned_);
    returned_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    --device_.n_in_flight;
    if (device_.n_waited++ >= device_.fails_at) return fail(ErrorCode::device_lost, "the device is lost");
    return StepOutput{returned_.sampled, returned_.logits, {}};
  }

  std::span<const float> value(Value v) const override { return plan_->value(v); }

 private:
  struct Output {
    std::vector<TokenId> sampled;
    std::vector<float> logits;
  };
  static void invalidate(Output& output) {
    std::ranges::fill(output.sampled, -1);
    std::ranges::fill(output.logits, std::numeric_limits<float>::quiet_NaN());
  }

  std::unique_ptr<Plan> plan_;
  Device& device_;
  std::vector<TokenId> tokens_;
  std::map<int32_t, TokenId> last_;
  bool last_has_prompt_ = false, last_is_long_ = false;
  std::deque<Output> in_flight_;
  Output returned_;
};

class AsyncSchedulingTest : public testing::TestWithParam<const char*> {
 protected:
  AsyncSchedulingTest()
      : model_(load_model({.name = GetParam()})), tokenizer_(std::move(Tokenizer::load(model_.file()).value())) {}

  struct Sizes {
    int n_pages = 60, chunk = kChunk, n_sequences = kSequences, checkpoint_interval = 48;
  };
  void start(bool can_sample_on_device, int fails_at = kNever, int n_pages = 60) {
    start_sized(can_sample_on_device, {.n_pages = n_pages});
    device_.fails_at = fails_at;
  }
  void start_sized(bool can_sample_on_device, const Sizes& wanted) {
    loop_.reset();
    device_ = {};
    submission_queue_ = std::make_unique<SubmissionQueue>(100, wanted.n_sequences);
    const size_t n_groups = page_groups(model_.model().caches).size();
    const CacheSizes sizes{
        .n_pages = std::vector<int>(n_groups, wanted.n_pages), .n_slots = 8, .kv_format = &model_.kv_format()};
    auto cache = std::move(
        KvCache::create(model_.backend(), model_.model().caches, {.sizes = sizes, .max_chunk_tokens = wanted.chunk})
            .value());
    const Bucket bucket{.max_tokens = wanted.chunk + wanted.n_sequences,
                        .max_seqs = wanted.n_sequences,
                        .max_outputs = wanted.n_sequences};
    auto plan =
        std::move(model_.backend().compile(model_.model().graph, model_.weights(), cache->memory(), bucket).value());
    loop_ = std::make_unique<EngineLoop>(*submission_queue_, std::move(cache),
                                         std::make_unique<DeviceTokenPlan>(std::move(plan), device_),
                                         LoopOptions{.max_sequences = wanted.n_sequences,
                                                     .checkpoint_interval = wanted.checkpoint_interval,
                                                     .n_vocab = tokenizer_.n_vocab(),
                                                     .can_sample_on_device = can_sample_on_device,
                                                     .scheduler = {.step_tokens = wanted.chunk}});
  }

  struct Submitted {
    RequestId id;
    std::shared_ptr<RecordingSink> output;
  };
  Submitted submit_request(Request request) {
    const auto output = std::make_shared<RecordingSink>();
    request.sink = output;
    const int max_length = static_cast<int>(request.prompt.size()) + request.options.max_tokens - 1;
    auto state = std::make_unique<RequestState>(std::move(request), tokenizer_);
    state->max_length = max_length;
    return {submission_queue_->put(std::move(state)).value(), output};
  }
  // Until a step is pipelined.
  void step_until_pipelined() {
    while (device_.most_in_flight < 2) ASSERT_TRUE(loop_->step());
  }
  void finish() {
    while (loop_->step()) {
    }
  }
  int pages_held() const {
    int n = 0;
    for (const PageUse& use : loop_->stats().pages) n += use.n_in_use;
    return n;
  }

  // Outputs of requests submitted a few steps apart, three at a time.
  std::vector<std::shared_ptr<RecordingSink>> generate(const std::vector<Request>& requests,
                                                       bool can_sample_on_device) {
    start(can_sample_on_device);
    std::vector<std::shared_ptr<RecordingSink>> output;
    for (const Request& request : requests) {
      output.push_back(submit_request(request).output);
      for (int i = 0; i < 6; ++i) loop_->step();
    }
    finish();
    EXPECT_EQ(pages_held(), 0);
    return output;
  }

  Request request(uint32_t seed, size_t n_prompt, int max_tokens) const {
    Request made{.prompt = random_tokens(tokenizer_, n_prompt, seed), .options = greedy(max_tokens)};
    made.options.n_top_logprobs = -1;
    return made;
  }
  // Two single-byte characters from the second half.
  static std::string text_inside(const std::string& text) {
    const auto is_plain = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    size_t at = text.size() / 2;
    while (at + 2 < text.size() && !(is_plain(text[at]) && is_plain(text[at + 1]))) ++at;
    return text.substr(at, 2);
  }
  // A request whose prompt is `from`'s prompt and the first n tokens of its output.
  static Request continued(Request from, const RecordingSink& output, size_t n) {
    for (size_t i = 0; i < n; ++i) from.prompt.push_back(output.output_tokens[i].id);
    from.options.stop.clear();
    return from;
  }

  ModelInstance model_;
  Tokenizer tokenizer_;
  Device device_;
  std::unique_ptr<SubmissionQueue> submission_queue_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_P(AsyncSchedulingTest, pipelined_steps_give_the_same_output_as_sequential_ones) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(request(i, 10 + 17 * i, static_cast<int>(8 + 9 * i)));
  const auto whole = generate(requests, false);
  EXPECT_EQ(device_.most_in_flight, 1);
  // Two end at a stop string, which only the host detects, and later requests reuse their prefix.
  for (const size_t i : {2u, 4u}) requests[i].options.stop = {text_inside(whole[i]->text)};
  for (const size_t i : {2u, 4u})
    requests.push_back(continued(requests[i], *whole[i], whole[i]->output_tokens.size() / 2));
  const auto expected = generate(requests, false), got = generate(requests, true);
  EXPECT_EQ(device_.most_in_flight, 2);
  EXPECT_EQ(expected[2]->outcome.reason, StopReason::stop_string);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_output(*got[i], *expected[i]))
        << "request " << i << ": " << got[i]->text << " instead of " << expected[i]->text;
    EXPECT_EQ(got[i]->n_ends, 1);
  }
}

// The pipelined step has also fed the last token, so the whole output is in the prefix cache.
TEST_P(AsyncSchedulingTest, the_prefix_of_a_request_that_ended_in_flight_is_reused) {
  Request first = request(1, 40, 60);
  const std::shared_ptr<RecordingSink> whole = generate({first}, false)[0];
  first.options.stop = {text_inside(whole->text)};
  start(true);
  const Submitted cut = submit_request(first);
  finish();
  ASSERT_EQ(cut.output->outcome.reason, StopReason::stop_string);
  EXPECT_EQ(device_.most_in_flight, 2);
  const size_t n_made = cut.output->output_tokens.size();
  ASSERT_LT(n_made, whole->output_tokens.size());
  const Request second = continued(request(1, 40, 8), *whole, n_made + 1);
  const Submitted next = submit_request(second);
  finish();
  EXPECT_EQ(next.output->outcome.usage.n_cached, static_cast<int>(40 + n_made));
  EXPECT_TRUE(same_output(*next.output, *generate({second}, false)[0]));
}

TEST_P(AsyncSchedulingTest, a_cancelled_request_ends_at_once_and_releases_its_pages_after_the_step_in_flight) {
  start(true);
  const Submitted cancelled = submit_request(request(1, 40, 60));
  while (cancelled.output->output_tokens.empty()) ASSERT_TRUE(loop_->step());
  ASSERT_EQ(device_.n_in_flight, 1) << "the next step of the request";
  submission_queue_->cancel(cancelled.id);
  const int n_waited = device_.n_waited;
  loop_->step();
  EXPECT_EQ(device_.n_waited, n_waited + 1) << "the step in flight is waited for";
  EXPECT_EQ(cancelled.output->n_ends, 1);
  EXPECT_EQ(cancelled.output->outcome.reason, StopReason::cancelled);
  EXPECT_EQ(pages_held(), 0);
  EXPECT_FALSE(loop_->step());
  EXPECT_EQ(cancelled.output->n_after_end, 0);
  // Its whole output, and the token fed by the pipelined step, are in the prefix cache and correct.
  const size_t n_made = cancelled.output->output_tokens.size();
  const Request second = continued(request(1, 40, 8), *cancelled.output, n_made);
  Request longer = second;
  longer.prompt.push_back(second.prompt.front());
  const Submitted next = submit_request(longer);
  finish();
  EXPECT_EQ(next.output->outcome.usage.n_cached, static_cast<int>(40 + n_made));
  EXPECT_TRUE(same_output(*next.output, *generate({longer}, false)[0]));
}

TEST_P(AsyncSchedulingTest, cancelling_one_request_does_not_change_the_others) {
  const std::vector<Request> requests = {request(1, 20, 40), request(2, 30, 40), request(3, 25, 40)};
  const auto expected = generate({requests[0], requests[2]}, false);
  start(true);
  std::vector<Submitted> submitted;
  for (const Request& each : requests) submitted.push_back(submit_request(each));
  step_until_pipelined();
  loop_->step();
  submission_queue_->cancel(submitted[1].id);
  finish();
  EXPECT_EQ(submitted[1].output->outcome.reason, StopReason::cancelled);
  EXPECT_TRUE(same_output(*submitted[0].output, *expected[0]));
  EXPECT_TRUE(same_output(*submitted[2].output, *expected[1]));
  for (const Submitted& each : submitted) EXPECT_EQ(each.output->n_ends, 1);
  EXPECT_EQ(pages_held(), 0);
}

// Outputs are compared in pipelined_steps_give_the_same_output_as_sequential_ones.
TEST_P(AsyncSchedulingTest, steps_with_prompts_of_new_requests_are_pipelined) {
  start(true);
  const Submitted first = submit_request(request(1, 20, 200));
  step_until_pipelined();
  for (int i = 0; i < 3; ++i) loop_->step();  // the time of a decode-only step is known
  EXPECT_EQ(device_.n_pipelined_prompts, 0);
  const Submitted second = submit_request(request(2, 25, 200));
  while (second.output->output_tokens.size() < 4) ASSERT_TRUE(loop_->step());
  EXPECT_GE(device_.n_pipelined_prompts, 1);
  EXPECT_GE(device_.n_after_pipelined_prompts, 1);
}

TEST_P(AsyncSchedulingTest, a_request_cancelled_with_its_prompt_in_flight_leaves_the_others_and_the_cache_correct) {
  const Request running = request(1, 20, 60), cancelled = request(2, 30, 8);
  const auto expected = generate({running}, false)[0], again_expected = generate({cancelled}, false)[0];
  start(true);
  const Submitted first = submit_request(running);
  step_until_pipelined();
  for (int i = 0; i < 3; ++i) loop_->step();  // the time of a decode-only step is known
  const Submitted second = submit_request(cancelled);
  while (device_.n_pipelined_prompts == 0) ASSERT_TRUE(loop_->step());
  submission_queue_->cancel(second.id);
  loop_->step();
  EXPECT_EQ(second.output->n_ends, 1);
  EXPECT_TRUE(second.output->output_tokens.empty());
  const Submitted again = submit_request(cancelled);
  finish();
  EXPECT_TRUE(same_output(*first.output, *expected));
  EXPECT_TRUE(same_output(*again.output, *again_expected));
  EXPECT_EQ(second.output->n_after_end, 0);
  EXPECT_EQ(pages_held(), 0);
}

TEST_P(AsyncSchedulingTest, chunks_of_one_prompt_are_pipelined_with_the_same_output) {
  const Sizes long_chunks{.chunk = 300, .n_sequences = 1, .checkpoint_interval = 4096};
  for (const Sizes& sizes : {Sizes{}, long_chunks}) {
    const Request asked = request(1, static_cast<size_t>(3 * sizes.chunk + 10), 8);
    start_sized(false, sizes);
    const Submitted expected = submit_request(asked);
    finish();
    start_sized(true, sizes);
    const Submitted got = submit_request(asked);
    finish();
    EXPECT_GE(sizes.chunk > 256 ? device_.n_after_long_chunks : device_.n_pipelined_prompts, 1);
    EXPECT_TRUE(same_output(*got.output, *expected.output)) << "chunks of " << sizes.chunk;
    EXPECT_EQ(pages_held(), 0);
  }
}

// A request that arrives while a long chunk runs has to wait for it, but not for the next one as well.
TEST_P(AsyncSchedulingTest, a_long_chunk_is_not_pipelined_if_others_would_wait_for_the_next) {
  start_sized(true, {.chunk = 300, .n_sequences = 2, .checkpoint_interval = 4096});
  const Submitted alone = submit_request(request(1, 590, 1));  // the time of long chunks is not known yet
  finish();
  EXPECT_EQ(device_.n_after_long_chunks, 0);
  start_sized(true, {.chunk = 300, .n_sequences = 1, .checkpoint_interval = 4096});
  const Submitted first = submit_request(request(1, 590, 1)), waiting = submit_request(request(2, 20, 1));
  finish();
  EXPECT_EQ(device_.n_after_long_chunks, 0) << "another request waits";
  start_sized(true, {.chunk = 600, .n_sequences = 2, .checkpoint_interval = 4096});
  const Submitted decoding = submit_request(request(1, 20, 60));
  for (int i = 0; i < 4; ++i) loop_->step();
  const Submitted joined = submit_request(request(2, 500, 1));
  while (joined.output->n_ends == 0) ASSERT_TRUE(loop_->step());
  EXPECT_EQ(device_.n_after_long_chunks, 0) << "another request decodes";
  for (const Submitted& each : {alone, first, waiting, joined}) EXPECT_EQ(each.output->n_ends, 1);
}

// The step after the last one of a request has the rows of the others.
TEST_P(AsyncSchedulingTest, steps_are_pipelined_while_a_request_reaches_its_token_limit) {
  start(true);
  const Submitted longer = submit_request(request(1, 20, 200)), shorter = submit_request(request(2, 20, 30));
  step_until_pipelined();
  while (shorter.output->n_ends == 0) ASSERT_TRUE(loop_->step());
  EXPECT_EQ(device_.n_in_flight, 1) << "the next step of the other request";
  EXPECT_EQ(shorter.output->outcome.reason, StopReason::max_tokens);
}

// Three requests of up to six pages each in a cache of ten. A step that lacks pages is not started early, so that the
// youngest request is preempted with nothing in flight.
TEST_P(AsyncSchedulingTest, pipelined_requests_are_preempted_and_give_the_same_output) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back(request(i, 30 + 7 * i, 120));
  const auto expected = generate(requests, false);
  start(true, kNever, 10);
  std::vector<Submitted> submitted;
  for (const Request& each : requests) submitted.push_back(submit_request(each));
  step_until_pipelined();
  submission_queue_->cancel(submit_request(request(9, 20, 120)).id);
  finish();
  EXPECT_GT(loop_->stats().n_preempted, 1u);
  EXPECT_EQ(device_.most_in_flight, 2);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_output(*submitted[i].output, *expected[i])) << "request " << i;
    EXPECT_EQ(submitted[i].output->n_ends, 1);
  }
  EXPECT_EQ(pages_held(), 0);
}

// Two requests of up to seven pages run in a cache of 16, and two of 13 pages wait for memory.
TEST_P(AsyncSchedulingTest, steps_are_pipelined_while_requests_wait_for_memory) {
  start(true, kNever, 16);
  std::vector<Submitted> submitted;
  for (uint32_t i = 0; i < 2; ++i) submitted.push_back(submit_request(request(i, 20, 200)));
  for (uint32_t i = 2; i < 4; ++i) submitted.push_back(submit_request(request(i, 400, 8)));
  while (submitted[1].output->output_tokens.size() < 4) ASSERT_TRUE(loop_->step());
  EXPECT_EQ(device_.most_in_flight, 2);
  EXPECT_EQ(loop_->stats().n_waiting, 2);
  finish();
  for (const Submitted& each : submitted) EXPECT_EQ(each.output->n_ends, 1);
}

// The step that fails, and the one pipelined after it.
TEST_P(AsyncSchedulingTest, a_failed_step_fails_its_requests_and_inserts_nothing) {
  const Request repeated = request(1, 40, 60);
  const std::shared_ptr<RecordingSink> expected = generate({repeated}, false)[0];
  start(true, 10);
  const Submitted lost = submit_request(repeated), other = submit_request(request(2, 20, 60));
  finish();
  EXPECT_EQ(device_.most_in_flight, 2);
  for (const Submitted& each : {lost, other}) {
    EXPECT_EQ(each.output->n_ends, 1);
    EXPECT_EQ(each.output->outcome.reason, StopReason::failed);
    ASSERT_TRUE(each.output->outcome.error.has_value());
    EXPECT_EQ(each.output->outcome.error->code, ErrorCode::device_lost);
  }
  EXPECT_EQ(pages_held(), 0);
  device_.fails_at = kNever;
  const size_t n_made = lost.output->output_tokens.size();
  ASSERT_GT(n_made, 2u);
  const Submitted further = submit_request(continued(repeated, *lost.output, n_made));
  finish();
  EXPECT_LE(further.output->outcome.usage.n_cached, static_cast<int>(repeated.prompt.size()));
  const Submitted again = submit_request(repeated);
  finish();
  EXPECT_TRUE(same_output(*again.output, *expected));
}

TEST_P(AsyncSchedulingTest, a_destroyed_engine_waits_for_the_step_in_flight) {
  start(true);
  const Submitted one = submit_request(request(1, 20, 60)), other = submit_request(request(2, 30, 60));
  step_until_pipelined();
  loop_.reset();
  EXPECT_TRUE(device_.is_gone);
  EXPECT_EQ(device_.n_left_in_flight, 0);
  for (const Submitted& each : {one, other}) {
    EXPECT_EQ(each.output->n_ends, 1);
    EXPECT_EQ(each.output->n_after_end, 0);
    EXPECT_EQ(each.output->outcome.reason, StopReason::cancelled);
  }
}

INSTANTIATE_TEST_SUITE_P(, AsyncSchedulingTest, testing::Values("qwen3-q8_0", "gemma3-f16", "qwen35-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc
