// The scheduler under load, in virtual time: a step takes as long as the table of a device says, so that latencies and
// throughput are those of the policy alone. The device is qwen3-8b q4_k_m on an H200 (docs/performance.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "engine/scheduler.h"

namespace zinc {
namespace {

constexpr int kStepTokens = 2048;      // BackendInfo::step_tokens of the GPU backends
constexpr double kHostS = 0.0005;      // of a step that is not pipelined: outputs, the next schedule, its upload
constexpr double kClientS = 0.002;     // from the end of an output to the next request of the same stream
constexpr double kHandlingS = 0.0002;  // HTTP, chat template and tokenizer, one request after the other

struct StepCost {
  double n_rows, seconds;
};
// Up to 256 rows the measured decode steps, then prefill at 17 and 23 thousand tokens per second.
constexpr std::array<StepCost, 11> kStepCosts = {{{1, 0.00155},
                                                  {2, 0.00294},
                                                  {8, 0.00303},
                                                  {16, 0.00367},
                                                  {32, 0.00418},
                                                  {64, 0.00569},
                                                  {128, 0.00913},
                                                  {256, 0.0158},
                                                  {512, 0.0300},
                                                  {2048, 0.0890},
                                                  {4096, 0.1780}}};

double step_s(double n_rows) {
  const auto above = std::ranges::find_if(kStepCosts, [&](const StepCost& c) { return c.n_rows >= n_rows; });
  if (above == kStepCosts.begin()) return above->seconds;
  const StepCost &to = *above, &from = *std::prev(above);
  return from.seconds + (to.seconds - from.seconds) * (n_rows - from.n_rows) / (to.n_rows - from.n_rows);
}

double prefill_s(int n_tokens) {
  double seconds = 0;
  for (; n_tokens > 0; n_tokens -= kStepTokens) seconds += step_s(std::min(n_tokens, kStepTokens));
  return seconds;
}

struct Load {
  int n_requests = 0;
  int n_streams = 0;      // closed loop
  double per_second = 0;  // open loop: exponential inter-arrival times
  int max_sequences = 0;
  int n_output = 128;
  std::function<int(int)> n_prompt;  // of request i
};

struct Figures {
  std::vector<double> first_token_s, gaps_s;
  double seconds = 0;
  int n_tokens = 0;

  double tokens_per_s() const { return n_tokens / seconds; }
};

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
}

// One engine and its clients. A decode-only step is started before the one before it has ended (async scheduling), so
// requests that arrive in between are in the step after it.
class Simulation {
 public:
  explicit Simulation(const Load& load)
      : load_(load), scheduler_({.step_tokens = kStepTokens, .max_outputs = load.max_sequences}) {}

  Figures run() {
    if (load_.per_second > 0) {
      std::minstd_rand random(1);
      std::exponential_distribution<double> interval(load_.per_second);
      for (double at = 0; n_sent_ < load_.n_requests; at += interval(random)) send(at);
    }
    while (load_.per_second == 0 && n_sent_ < std::min(load_.n_streams, load_.n_requests)) send(0);
    while (!arrivals_.empty() || scheduler_.n_running() > 0 || scheduler_.n_waiting() > 0) run_step();
    figures_.seconds = now_s_;
    return figures_;
  }

 private:
  struct Running {
    double sent_s = 0, last_token_s = 0;
    int n_output = 0;
  };

  void send(double at) {
    handled_s_ = std::max(handled_s_, at) + kHandlingS;
    const RequestId id = static_cast<RequestId>(++n_sent_);
    requests_[id].sent_s = at;
    arrivals_.emplace(handled_s_, id);
  }

  void admit(double visible_s) {
    while (!arrivals_.empty() && arrivals_.begin()->first <= visible_s) {
      scheduler_.enqueue(arrivals_.begin()->second, "");
      arrivals_.erase(arrivals_.begin());
    }
    for (const RequestId id : scheduler_.admission_order()) {
      if (scheduler_.n_running() == load_.max_sequences) return;
      scheduler_.admit(id, load_.n_prompt(static_cast<int>(id) - 1), 0, {});
    }
  }

  void run_step() {
    admit(was_decode_only_ ? last_begin_s_ : now_s_);
    const std::span<const ScheduledSequence> scheduled = scheduler_.schedule_step();
    if (scheduled.empty()) {
      was_decode_only_ = false;
      if (!arrivals_.empty()) now_s_ = std::max(now_s_, arrivals_.begin()->first);
      return;
    }
    const std::vector<ScheduledSequence> step(scheduled.begin(), scheduled.end());
    int n_rows = 0;
    was_decode_only_ = scheduler_.n_prefilling() == 0;
    scheduler_.start_step();
    for (const ScheduledSequence& entry : step) n_rows += entry.n_tokens;
    last_begin_s_ = now_s_;
    const double seconds = step_s(n_rows);
    now_s_ += seconds + (was_decode_only_ ? 0 : kHostS);
    scheduler_.complete_step(seconds);
    for (const ScheduledSequence& entry : step) {
      if (entry.samples_token) emit_token(entry.id);
    }
  }

  void emit_token(RequestId id) {
    Running& request = requests_.at(id);
    if (request.n_output++ == 0) {
      figures_.first_token_s.push_back(now_s_ - request.sent_s);
    } else {
      figures_.gaps_s.push_back(now_s_ - request.last_token_s);
    }
    request.last_token_s = now_s_;
    ++figures_.n_tokens;
    if (request.n_output < load_.n_output) return;
    scheduler_.remove(id);
    requests_.erase(id);
    if (load_.per_second == 0 && n_sent_ < load_.n_requests) send(now_s_ + kClientS);
  }

  const Load load_;
  Scheduler scheduler_;
  std::set<std::pair<double, RequestId>> arrivals_;
  std::map<RequestId, Running> requests_;
  int n_sent_ = 0;
  bool was_decode_only_ = false;
  double now_s_ = 0, last_begin_s_ = 0, handled_s_ = 0;
  Figures figures_;
};

double first_token_ms(const Figures& figures, double share) { return 1e3 * percentile(figures.first_token_s, share); }
double longest_gap_ms(const Figures& figures) { return 1e3 * percentile(figures.gaps_s, 1); }

constexpr int kPrompt = 90;

Figures run_streams(int n_streams, int n_waves) {
  return Simulation({.n_requests = n_waves * n_streams,
                     .n_streams = n_streams,
                     .max_sequences = n_streams + 1,
                     .n_prompt = [](int) { return kPrompt; }})
      .run();
}

// All prompts are 131 ms of prefill in the longest steps, or 169 ms in steps of 512 tokens.
TEST(SchedulerLoad, first_tokens_of_32_streams_take_little_longer_than_their_prefill) {
  for (const int n_waves : {1, 4, 16}) {
    const Figures figures = run_streams(32, n_waves);
    EXPECT_LT(first_token_ms(figures, 0.95), 140) << n_waves << " waves";
    EXPECT_LT(longest_gap_ms(figures), 100) << n_waves << " waves";
  }
}

TEST(SchedulerLoad, throughput_is_that_of_prefill_and_then_decode_of_the_whole_batch) {
  for (const int n_streams : {8, 32, 64, 128}) {
    const double batch_s = prefill_s(n_streams * kPrompt) + Load().n_output * step_s(n_streams);
    const Figures figures = run_streams(n_streams, 4);
    EXPECT_GT(figures.tokens_per_s(), 0.97 * n_streams * Load().n_output / batch_s) << n_streams << " streams";
    EXPECT_LT(longest_gap_ms(figures), 105) << n_streams << " streams";
  }
}

// Three chats to one document: the chats do not wait for the documents.
TEST(SchedulerLoad, brief_prompts_are_answered_before_documents_that_arrived_with_them) {
  const Load load{
      .n_requests = 32, .n_streams = 16, .max_sequences = 17, .n_prompt = [](int i) { return i % 4 == 2 ? 420 : 44; }};
  const Figures figures = Simulation(load).run();
  EXPECT_LT(first_token_ms(figures, 0.5), 50);
  EXPECT_LT(first_token_ms(figures, 0.95), 150);
  double alone_s = 0;
  for (int i = 0; i < load.n_requests; ++i) alone_s += step_s(load.n_prompt(i)) + load.n_output * step_s(1);
  EXPECT_GT(alone_s / figures.seconds, 5);
}

TEST(SchedulerLoad, requests_that_arrive_one_by_one_wait_for_few_steps) {
  const Load load{
      .n_requests = 1000, .per_second = 50, .max_sequences = 128, .n_prompt = [](int i) { return 30 + i * 37 % 120; }};
  const Figures figures = Simulation(load).run();
  EXPECT_LT(first_token_ms(figures, 0.5), 25);
  EXPECT_LT(first_token_ms(figures, 0.95), 40);
  EXPECT_LT(1e3 * percentile(figures.gaps_s, 0.95), 20);
}

// A prompt of 30,000 tokens is prefilled at half the speed or less: 2.6 s at least. The others do not wait for it.
TEST(SchedulerLoad, short_prompts_do_not_wait_for_a_long_one_that_arrived_before) {
  const Load load{.n_requests = 64, .n_streams = 32, .max_sequences = 33, .n_prompt = [](int i) {
                    return i == 0 ? 30'000 : kPrompt;
                  }};
  const Figures figures = Simulation(load).run();
  EXPECT_LT(first_token_ms(figures, 0.95), 300);
  EXPECT_LT(first_token_ms(figures, 1), 6000) << "nor does it starve";
  EXPECT_LT(longest_gap_ms(figures), 125);
}

}  // namespace
}  // namespace zinc
