// Steps that are started before the one before them has ended: the answers are the same, and what ends unforeseen
// leaves nothing wrong behind. The device is the CPU backend, made to keep its tokens to itself.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "engine/engine_loop.h"
#include "tests/support/serving.h"

namespace zinc {
namespace {

// Chooses the most likely tokens and remembers them by slot, as a device that is fed its own tokens does.
class KeepingPlan final : public Plan {
 public:
  KeepingPlan(std::unique_ptr<Plan> plan, int* most_in_flight) : plan_(std::move(plan)), most_(most_in_flight) {}

  void start(const StepInputs& inputs) override {
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
    done_.push_back({{output.sampled.begin(), output.sampled.end()}, {output.logits.begin(), output.logits.end()}});
    *most_ = std::max(*most_, static_cast<int>(++n_in_flight_));
    if (done_.size() > 4) done_.pop_front();
  }

  Result<StepOutput> wait() override {
    Done& oldest = done_[done_.size() - n_in_flight_--];
    return StepOutput{oldest.sampled, oldest.logits, {}};
  }

  std::span<const float> value(Value v) const override { return plan_->value(v); }

 private:
  struct Done {
    std::vector<TokenId> sampled;
    std::vector<float> logits;
  };
  std::unique_ptr<Plan> plan_;
  int* most_;
  std::vector<TokenId> tokens_;
  std::map<int32_t, TokenId> last_;
  std::deque<Done> done_;
  size_t n_in_flight_ = 0;
};

class EngineAheadTest : public testing::TestWithParam<const char*> {
 protected:
  EngineAheadTest()
      : model_(load_model({.name = GetParam()})), tokenizer_(std::move(Tokenizer::load(model_.file()).value())) {}

  // Answers of requests put a few steps apart, three at a time; how many steps were in flight at most.
  std::vector<std::shared_ptr<Told>> answers(const std::vector<Request>& requests, bool draws_tokens) {
    constexpr int kRun = 32, kSequences = 3;
    const size_t n_groups = page_groups(model_.model().caches).size();
    const CacheSizes sizes{.n_pages = std::vector<int>(n_groups, 60), .n_slots = 8, .kv_format = &model_.kv_format()};
    auto cache = std::move(
        KvCache::create(model_.backend(), model_.model().caches, {.sizes = sizes, .max_run_tokens = kRun}).value());
    const Bucket bucket{.max_tokens = kRun + kSequences, .max_seqs = kSequences, .max_outputs = kSequences};
    auto plan =
        std::move(model_.backend().compile(model_.model().graph, model_.weights(), cache->memory(), bucket).value());
    most_in_flight_ = 0;
    std::vector<StepPlan> plans;
    plans.push_back({bucket.max_tokens, std::make_unique<KeepingPlan>(std::move(plan), &most_in_flight_)});
    Inbox inbox(100, kSequences);
    EngineLoop loop(inbox, std::move(cache), std::move(plans),
                    {.max_sequences = kSequences,
                     .n_vocab = tokenizer_.n_vocab(),
                     .draws_tokens = draws_tokens,
                     .scheduler = {.step_tokens = kRun}});
    std::vector<std::shared_ptr<Told>> told;
    for (Request request : requests) {
      told.push_back(std::make_shared<Told>());
      request.sink = told.back();
      const int max_length = static_cast<int>(request.prompt.size()) + request.answer.max_tokens - 1;
      auto live = std::make_unique<LiveRequest>(std::move(request), tokenizer_);
      live->max_length = max_length;
      EXPECT_TRUE(inbox.put(std::move(live)).ok());
      for (int i = 0; i < 6; ++i) loop.step();
    }
    while (loop.step()) {
    }
    return told;
  }

  Request request(uint32_t seed, size_t n_prompt, int max_tokens) const {
    Request made{.prompt = draw_tokens(tokenizer_, n_prompt, seed), .answer = greedy(max_tokens)};
    made.answer.n_top_logprobs = -1;
    return made;
  }

  ModelInstance model_;
  Tokenizer tokenizer_;
  int most_in_flight_ = 0;
};

TEST_P(EngineAheadTest, answers_are_those_of_steps_one_after_the_other) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(request(i, 10 + 17 * i, static_cast<int>(8 + 9 * i)));
  const auto plain = answers(requests, false);
  EXPECT_EQ(most_in_flight_, 1);
  // Two end at text that only the host sees, and what comes after goes on from what they left.
  for (const size_t i : {2u, 4u}) requests[i].answer.stop = {plain[i]->text.substr(plain[i]->text.size() / 2, 2)};
  for (const size_t i : {2u, 4u}) {
    Request next = requests[i];
    next.answer.stop.clear();
    for (const AnswerToken& token : plain[i]->made) next.prompt.push_back(token.id);
    next.prompt.resize(requests[i].prompt.size() + plain[i]->made.size() / 2);
    requests.push_back(std::move(next));
  }
  const auto expected = answers(requests, false), got = answers(requests, true);
  const bool has_states = state_bytes(model_.model().caches) > 0;
  EXPECT_EQ(most_in_flight_, has_states ? 1 : 2);
  EXPECT_EQ(expected[2]->outcome.reason, StopReason::stop_string);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_answer(*got[i], *expected[i]))
        << "request " << i << ": " << got[i]->text << " instead of " << expected[i]->text;
    EXPECT_EQ(got[i]->n_ends, 1);
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
