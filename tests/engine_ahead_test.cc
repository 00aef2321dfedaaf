// Steps that are started before the one before them has ended: the answers are the same, and what ends unforeseen
// leaves nothing wrong behind. The device is the CPU backend, made to keep its tokens to itself.
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <numeric>

#include "engine/engine_loop.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

constexpr int kRun = 32, kSequences = 3;
constexpr int kNever = std::numeric_limits<int>::max();

// What the plan saw, and what it is to do.
struct Device {
  int most_in_flight = 0;
  int n_waited = 0;
  int fails_at = kNever;  // the step, counted from 0, that comes to nothing
  bool is_gone = false;   // the plan was destroyed
  int n_left_in_flight = 0;
};

// Chooses the most likely tokens and remembers them by slot, as a device that is fed its own tokens does. An output is
// spoilt as soon as Plan::start allows.
class KeepingPlan final : public Plan {
 public:
  KeepingPlan(std::unique_ptr<Plan> plan, Device& device) : plan_(std::move(plan)), device_(device) {}
  ~KeepingPlan() override {
    device_.is_gone = true;
    device_.n_left_in_flight = static_cast<int>(in_flight_.size());
  }

  void start(const StepInputs& inputs) override {
    spoil(given_);
    tokens_.assign(inputs.tokens.begin(), inputs.tokens.end());
    for (size_t s = 0; s < inputs.slots.size(); ++s) {
      TokenId& first = tokens_[static_cast<size_t>(inputs.seq_begin[s])];
      if (first == kFromDevice) first = last_.at(inputs.slots[s]);
    }
    StepInputs known = inputs;
    known.tokens = tokens_;
    known.draws = {};
    plan_->start(known);
    const StepOutput output = plan_->wait().value();
    for (size_t r = 0, s = 0; r < inputs.output_rows.size(); ++r) {
      while (inputs.seq_begin[s + 1] <= inputs.output_rows[r]) ++s;
      last_[inputs.slots[s]] = output.sampled[r];
    }
    in_flight_.push_back(
        {{output.sampled.begin(), output.sampled.end()}, {output.logits.begin(), output.logits.end()}});
    device_.most_in_flight = std::max(device_.most_in_flight, static_cast<int>(in_flight_.size()));
    EXPECT_LE(in_flight_.size(), 2u);
  }

  Result<StepOutput> wait() override {
    spoil(given_);
    given_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (device_.n_waited++ >= device_.fails_at) return fail(ErrorCode::device_lost, "the device is gone");
    return StepOutput{given_.sampled, given_.logits, {}};
  }

  std::span<const float> value(Value v) const override { return plan_->value(v); }

 private:
  struct Output {
    std::vector<TokenId> sampled;
    std::vector<float> logits;
  };
  static void spoil(Output& output) {
    std::ranges::fill(output.sampled, -1);
    std::ranges::fill(output.logits, std::numeric_limits<float>::quiet_NaN());
  }

  std::unique_ptr<Plan> plan_;
  Device& device_;
  std::vector<TokenId> tokens_;
  std::map<int32_t, TokenId> last_;
  std::deque<Output> in_flight_;
  Output given_;
};

class EngineAheadTest : public testing::TestWithParam<const char*> {
 protected:
  EngineAheadTest()
      : model_(load_model({.name = GetParam()})), tokenizer_(std::move(Tokenizer::load(model_.file()).value())) {}

  void start(bool draws_tokens, int fails_at = kNever) {
    loop_.reset();
    device_ = {.fails_at = fails_at};
    inbox_ = std::make_unique<Inbox>(100, kSequences);
    const size_t n_groups = page_groups(model_.model().caches).size();
    const CacheSizes sizes{.n_pages = std::vector<int>(n_groups, 60), .n_slots = 8, .kv_format = &model_.kv_format()};
    auto cache = std::move(
        KvCache::create(model_.backend(), model_.model().caches, {.sizes = sizes, .max_run_tokens = kRun}).value());
    const Bucket bucket{.max_tokens = kRun + kSequences, .max_seqs = kSequences, .max_outputs = kSequences};
    auto plan =
        std::move(model_.backend().compile(model_.model().graph, model_.weights(), cache->memory(), bucket).value());
    std::vector<StepPlan> plans;
    plans.push_back({bucket.max_tokens, std::make_unique<KeepingPlan>(std::move(plan), device_)});
    loop_ = std::make_unique<EngineLoop>(*inbox_, std::move(cache), std::move(plans),
                                         LoopOptions{.max_sequences = kSequences,
                                                     .state_interval = 48,
                                                     .n_vocab = tokenizer_.n_vocab(),
                                                     .draws_tokens = draws_tokens,
                                                     .scheduler = {.step_tokens = kRun}});
  }

  struct Asked {
    RequestId id;
    std::shared_ptr<Told> told;
  };
  Asked ask(Request request) {
    const auto told = std::make_shared<Told>();
    request.sink = told;
    const int max_length = static_cast<int>(request.prompt.size()) + request.answer.max_tokens - 1;
    auto live = std::make_unique<LiveRequest>(std::move(request), tokenizer_);
    live->max_length = max_length;
    return {inbox_->put(std::move(live)).value(), told};
  }
  // Until steps are started ahead.
  void step_until_ahead() {
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

  // Answers of requests put a few steps apart, three at a time.
  std::vector<std::shared_ptr<Told>> answers(const std::vector<Request>& requests, bool draws_tokens) {
    start(draws_tokens);
    std::vector<std::shared_ptr<Told>> told;
    for (const Request& request : requests) {
      told.push_back(ask(request).told);
      for (int i = 0; i < 6; ++i) loop_->step();
    }
    finish();
    EXPECT_EQ(pages_held(), 0);
    return told;
  }

  Request request(uint32_t seed, size_t n_prompt, int max_tokens) const {
    Request made{.prompt = draw_tokens(tokenizer_, n_prompt, seed), .answer = greedy(max_tokens)};
    made.answer.n_top_logprobs = -1;
    return made;
  }
  // Two characters of one byte each, from the second half.
  static std::string text_within(const std::string& text) {
    const auto is_plain = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    size_t at = text.size() / 2;
    while (at + 2 < text.size() && !(is_plain(text[at]) && is_plain(text[at + 1]))) ++at;
    return text.substr(at, 2);
  }
  // What comes after a request's prompt and the first n tokens of its answer.
  static Request continued(Request from, const Told& told, size_t n) {
    for (size_t i = 0; i < n; ++i) from.prompt.push_back(told.made[i].id);
    from.answer.stop.clear();
    return from;
  }

  ModelInstance model_;
  Tokenizer tokenizer_;
  Device device_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_P(EngineAheadTest, answers_are_those_of_steps_one_after_the_other) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(request(i, 10 + 17 * i, static_cast<int>(8 + 9 * i)));
  const auto plain = answers(requests, false);
  EXPECT_EQ(device_.most_in_flight, 1);
  // Two end at text that only the host sees, and what comes after goes on from what they left.
  for (const size_t i : {2u, 4u}) requests[i].answer.stop = {text_within(plain[i]->text)};
  for (const size_t i : {2u, 4u}) requests.push_back(continued(requests[i], *plain[i], plain[i]->made.size() / 2));
  const auto expected = answers(requests, false), got = answers(requests, true);
  EXPECT_EQ(device_.most_in_flight, 2);
  EXPECT_EQ(expected[2]->outcome.reason, StopReason::stop_string);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_answer(*got[i], *expected[i]))
        << "request " << i << ": " << got[i]->text << " instead of " << expected[i]->text;
    EXPECT_EQ(got[i]->n_ends, 1);
  }
}

// The step that was started ahead has fed the last token as well, so that all of the answer is found again.
TEST_P(EngineAheadTest, what_ended_unforeseen_is_gone_on_from_where_it_ended) {
  Request first = request(1, 40, 60);
  const std::shared_ptr<Told> plain = answers({first}, false)[0];
  first.answer.stop = {text_within(plain->text)};
  start(true);
  const Asked cut = ask(first);
  finish();
  ASSERT_EQ(cut.told->outcome.reason, StopReason::stop_string);
  EXPECT_EQ(device_.most_in_flight, 2);
  const size_t n_made = cut.told->made.size();
  ASSERT_LT(n_made, plain->made.size());
  const Request second = continued(request(1, 40, 8), *plain, n_made + 1);
  const Asked next = ask(second);
  finish();
  EXPECT_EQ(next.told->outcome.usage.n_cached, static_cast<int>(40 + n_made));
  EXPECT_TRUE(same_answer(*next.told, *answers({second}, false)[0]));
}

TEST_P(EngineAheadTest, a_cancelled_request_is_over_before_and_holds_nothing_after_the_next_step) {
  start(true);
  const Asked cancelled = ask(request(1, 40, 60));
  step_until_ahead();
  inbox_->cancel(cancelled.id);
  const int n_waited = device_.n_waited;
  loop_->step();
  EXPECT_EQ(device_.n_waited, n_waited + 1) << "what was started is waited for";
  EXPECT_EQ(cancelled.told->n_ends, 1);
  EXPECT_EQ(cancelled.told->outcome.reason, StopReason::cancelled);
  EXPECT_EQ(pages_held(), 0);
  EXPECT_FALSE(loop_->step());
  EXPECT_EQ(cancelled.told->n_after_end, 0);
  // All it had been told, and the token that was fed ahead, is found again and right.
  const size_t n_made = cancelled.told->made.size();
  const Request second = continued(request(1, 40, 8), *cancelled.told, n_made);
  Request longer = second;
  longer.prompt.push_back(second.prompt.front());
  const Asked next = ask(longer);
  finish();
  EXPECT_EQ(next.told->outcome.usage.n_cached, static_cast<int>(40 + n_made));
  EXPECT_TRUE(same_answer(*next.told, *answers({longer}, false)[0]));
}

TEST_P(EngineAheadTest, one_of_several_is_cancelled_and_the_others_answers_stay) {
  const std::vector<Request> requests = {request(1, 20, 40), request(2, 30, 40), request(3, 25, 40)};
  const auto expected = answers({requests[0], requests[2]}, false);
  start(true);
  std::vector<Asked> asked;
  for (const Request& each : requests) asked.push_back(ask(each));
  step_until_ahead();
  loop_->step();
  inbox_->cancel(asked[1].id);
  finish();
  EXPECT_EQ(asked[1].told->outcome.reason, StopReason::cancelled);
  EXPECT_TRUE(same_answer(*asked[0].told, *expected[0]));
  EXPECT_TRUE(same_answer(*asked[2].told, *expected[1]));
  for (const Asked& each : asked) EXPECT_EQ(each.told->n_ends, 1);
  EXPECT_EQ(pages_held(), 0);
}

// The step that fails, and the one that was started after it.
TEST_P(EngineAheadTest, a_failed_step_fails_its_requests_and_nothing_of_it_is_remembered) {
  const Request asked_again = request(1, 40, 60);
  const std::shared_ptr<Told> expected = answers({asked_again}, false)[0];
  start(true, 10);
  const Asked lost = ask(asked_again), other = ask(request(2, 20, 60));
  finish();
  EXPECT_EQ(device_.most_in_flight, 2);
  for (const Asked& each : {lost, other}) {
    EXPECT_EQ(each.told->n_ends, 1);
    EXPECT_EQ(each.told->outcome.reason, StopReason::failed);
    ASSERT_TRUE(each.told->outcome.error.has_value());
    EXPECT_EQ(each.told->outcome.error->code, ErrorCode::device_lost);
  }
  EXPECT_EQ(pages_held(), 0);
  device_.fails_at = kNever;
  const size_t n_made = lost.told->made.size();
  ASSERT_GT(n_made, 2u);
  const Asked further = ask(continued(asked_again, *lost.told, n_made));
  finish();
  EXPECT_LE(further.told->outcome.usage.n_cached, static_cast<int>(asked_again.prompt.size()));
  const Asked again = ask(asked_again);
  finish();
  EXPECT_TRUE(same_answer(*again.told, *expected));
}

TEST_P(EngineAheadTest, an_engine_that_goes_away_waits_for_the_step_it_has_started) {
  start(true);
  const Asked one = ask(request(1, 20, 60)), other = ask(request(2, 30, 60));
  step_until_ahead();
  loop_.reset();
  EXPECT_TRUE(device_.is_gone);
  EXPECT_EQ(device_.n_left_in_flight, 0);
  for (const Asked& each : {one, other}) {
    EXPECT_EQ(each.told->n_ends, 1);
    EXPECT_EQ(each.told->n_after_end, 0);
    EXPECT_EQ(each.told->outcome.reason, StopReason::cancelled);
  }
}

INSTANTIATE_TEST_SUITE_P(, EngineAheadTest, testing::Values("qwen3-q8_0", "gemma3-f16", "qwen35-f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc
