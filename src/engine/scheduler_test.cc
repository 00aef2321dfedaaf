#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/checkpoints.h"

namespace zinc {
namespace {

struct Fed {
  RequestId id;
  int begin, n_tokens;
  bool operator==(const Fed&) const = default;
};
void PrintTo(const Fed& run, std::ostream* out) { *out << run.id << ":" << run.begin << "+" << run.n_tokens; }

std::vector<Fed> runs_of(std::span<const ScheduledRun> step) {
  std::vector<Fed> runs;
  for (const ScheduledRun& run : step) runs.push_back({run.id, run.begin, run.n_tokens});
  return runs;
}

std::vector<Fed> step(Scheduler& scheduler, double seconds = 0.01) {
  const std::vector<Fed> runs = runs_of(scheduler.next());
  scheduler.finish(seconds);
  return runs;
}

void add(Scheduler& scheduler, RequestId id, int n_prompt, const std::string& client = "a", int n_cached = 0,
         std::vector<int> stops = {}) {
  scheduler.wait(id, client);
  scheduler.admit(id, n_prompt, n_cached, std::move(stops));
}

TEST(Scheduler, reads_a_prompt_in_chunks_then_feeds_one_token_a_step) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 100);
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 0, 64}}));
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 64, 36}}));
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 100, 1}}));
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 101, 1}}));
  scheduler.remove(1);
  EXPECT_TRUE(scheduler.next().empty());
}

TEST(Scheduler, a_token_comes_out_of_the_prompts_last_run_and_of_every_row_after_it) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 100);
  EXPECT_FALSE(scheduler.next()[0].ends_prompt);
  scheduler.finish(0.01);
  EXPECT_TRUE(scheduler.next()[0].ends_prompt);
  scheduler.finish(0.01);
  EXPECT_TRUE(scheduler.next()[0].ends_prompt);
}

TEST(Scheduler, cached_tokens_are_not_read_again) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 100, "a", 90);
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 90, 10}}));
}

TEST(Scheduler, runs_end_where_a_state_is_wanted_and_others_use_what_is_left) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 100, "a", 0, {10, 80});
  add(scheduler, 2, 100);
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 0, 10}, {2, 0, 54}}));
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 10, 64}}));
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 74, 6}, {2, 54, 46}}));
}

TEST(Scheduler, every_answer_gets_its_row_whatever_prompts_arrive) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 5);
  add(scheduler, 2, 5);
  step(scheduler);
  add(scheduler, 3, 8000);
  int n_plain = 0;
  for (int i = 0; i < 60; ++i) {
    const std::vector<Fed> runs = step(scheduler);
    ASSERT_GE(runs.size(), 2u);
    EXPECT_EQ(runs[0], (Fed{1, 5 + i, 1}));
    EXPECT_EQ(runs[1], (Fed{2, 5 + i, 1}));
    n_plain += runs.size() == 2 ? 1 : 0;
  }
  EXPECT_EQ(n_plain, 2) << "one to know what a step takes without the prompt, one to see whether that still holds";
}

TEST(Scheduler, clients_share_a_step_equally_and_leave_what_they_do_not_need) {
  Scheduler scheduler({.step_tokens = 90, .longest_gap = 2.2});
  for (const RequestId id : {1u, 2u, 3u}) add(scheduler, id, 1000, "greedy");
  add(scheduler, 4, 10, "modest");
  add(scheduler, 5, 1000, "other");
  EXPECT_EQ(step(scheduler), (std::vector<Fed>{{1, 0, 40}, {4, 0, 10}, {5, 0, 40}}));
}

TEST(Scheduler, who_waits_longest_in_tokens_comes_first_and_clients_take_turns) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 50, "busy");
  scheduler.wait(2, "busy");
  scheduler.wait(3, "busy");
  scheduler.wait(4, "new");
  scheduler.wait(5, "new");
  step(scheduler);
  EXPECT_EQ(scheduler.waiting_in_turn(), (std::vector<RequestId>{4, 5, 2, 3})) << "one of the busy client's runs";
  scheduler.remove(4);
  EXPECT_EQ(scheduler.waiting_in_turn(), (std::vector<RequestId>{5, 2, 3}));
  EXPECT_EQ(scheduler.n_waiting(), 3);
}

TEST(Scheduler, a_client_with_nothing_running_comes_before_those_that_have_had_less_but_run) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 5, "long");
  add(scheduler, 2, 500, "other");
  for (int i = 0; i < 5; ++i) step(scheduler);
  scheduler.remove(2);
  scheduler.wait(3, "long");
  scheduler.wait(4, "new");
  scheduler.wait(5, "long");
  EXPECT_EQ(scheduler.waiting_in_turn(), (std::vector<RequestId>{4, 3, 5}));
}

// Newcomers have nothing running and come first, but not for ever.
TEST(Scheduler, a_request_is_overtaken_a_bounded_number_of_times_however_many_clients_come) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 5, "busy");
  for (RequestId id = 2; id <= 5; ++id) scheduler.wait(id, "busy");
  std::vector<RequestId> admitted;
  for (RequestId id = 100; id < 200; ++id) {
    scheduler.wait(id, std::to_string(id));
    step(scheduler);
    const RequestId first = scheduler.waiting_in_turn().front();
    scheduler.admit(first, 5, 0, {});
    admitted.push_back(first);
    if (admitted.size() > 1) scheduler.remove(admitted[admitted.size() - 2]);
  }
  for (RequestId id = 2; id <= 5; ++id) {
    EXPECT_LT(std::ranges::find(admitted, id) - admitted.begin(), 20 * static_cast<int>(id - 1)) << "request " << id;
  }
  EXPECT_LE(std::ranges::count_if(admitted, [](RequestId id) { return id < 100; }), 6) << "one in a while, not all";
}

// However many have been overtaken, a newcomer waits for one of them at most.
TEST(Scheduler, those_that_were_overtaken_take_every_second_turn_at_most) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  RequestId id = 1;
  for (int c = 0; c < 20; ++c) {
    add(scheduler, id++, 5, "busy " + std::to_string(c));
    for (int i = 0; i < 4; ++i) scheduler.wait(id++, "busy " + std::to_string(c));
  }
  for (int i = 0; i < 60; ++i) {
    const RequestId newcomer = id++;
    scheduler.wait(newcomer, "new " + std::to_string(i));
    int n_before = 0;
    for (RequestId first = 0; first != newcomer; ++n_before) {
      first = scheduler.waiting_in_turn().front();
      scheduler.admit(first, 5, 0, {});
      scheduler.remove(first);
    }
    EXPECT_LE(n_before, 2) << "newcomer " << i;
  }
}

TEST(Scheduler, a_request_does_not_inherit_the_age_of_one_that_was_withdrawn) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 5, "busy");
  scheduler.wait(2, "busy");
  for (RequestId id = 100; id < 120; ++id) {
    scheduler.wait(id, std::to_string(id));
    scheduler.admit(id, 5, 0, {});
    scheduler.remove(id);
  }
  scheduler.wait(3, "busy");
  EXPECT_EQ(scheduler.waiting_in_turn().front(), 2u);
  scheduler.remove(2);
  scheduler.wait(200, "new");
  EXPECT_EQ(scheduler.waiting_in_turn().front(), 200u);
}

TEST(Scheduler, who_was_away_does_not_catch_up_at_the_expense_of_others) {
  Scheduler scheduler({.step_tokens = 64, .longest_gap = 2.2});
  add(scheduler, 1, 5, "busy");
  for (int i = 0; i < 1000; ++i) step(scheduler);
  add(scheduler, 2, 5, "late");
  for (int i = 0; i < 100; ++i) step(scheduler);
  scheduler.wait(3, "late");
  scheduler.wait(4, "busy");
  EXPECT_EQ(scheduler.waiting_in_turn().front(), 4u) << "both had the same since the second came, but for its prompt";
}

// A machine whose steps take what they take on a processor: so long for the weights, so long for each token and what it
// looks back to, and so long for reading that from memory, once for all tokens of a run.
struct Machine {
  double weights_s = 0.010, row_s = 0.001, token_s = 0.001, depth_s = 2e-7, read_s = 0;
  double step_s(std::span<const ScheduledRun> runs) const {
    double rows = 0, tokens = 0, depth = 0, read = 0;
    for (const ScheduledRun& run : runs) {
      if (run.n_tokens == 1 && run.ends_prompt) {
        rows += 1;
      } else {
        tokens += run.n_tokens;
        depth += run.n_tokens * (run.begin + run.n_tokens / 2.0);
        read += run.begin;
      }
    }
    return weights_s + rows * row_s + tokens * token_s + depth * depth_s + read * read_s;
  }
};

struct Gaps {
  double longest = 0, plain = 0;
  int n_steps = 0;
};
Gaps read_long_prompt(const Machine& machine, int n_answers, int n_prompt) {
  Scheduler scheduler({.step_tokens = 512, .longest_gap = 2.2});
  for (int i = 0; i < n_answers; ++i) add(scheduler, static_cast<RequestId>(i + 1), 5);
  Gaps gaps;
  for (int i = 0; i < 30; ++i) {
    gaps.plain = machine.step_s(scheduler.next());
    scheduler.finish(gaps.plain);
  }
  add(scheduler, 1000, n_prompt);
  while (scheduler.n_prefilling() > 0) {
    const double seconds = machine.step_s(scheduler.next());
    gaps.longest = std::max(gaps.longest, seconds);
    ++gaps.n_steps;
    scheduler.finish(seconds);
  }
  return gaps;
}

TEST(Scheduler, an_8000_token_prompt_stretches_no_gap_beyond_four_plain_steps) {
  for (const int n_answers : {1, 4, 64}) {
    for (const double token_s : {0.0001, 0.001, 0.01}) {
      for (const double depth_s : {0.0, 1e-7, 1e-6}) {
        const Machine machine{.token_s = token_s, .depth_s = depth_s, .read_s = 2e-7};
        const Gaps gaps = read_long_prompt(machine, n_answers, 8000);
        EXPECT_LE(gaps.longest, 4 * gaps.plain) << n_answers << " answers, " << token_s << " s/token, " << depth_s;
      }
    }
  }
}

// Many prompts at once while answers multiply: a step grows with its rows, and what it takes without prompts has to be
// known for numbers of rows that were never alone in a step.
TEST(Scheduler, a_burst_of_prompts_is_read_at_the_pace_that_is_allowed) {
  const Machine machine{.weights_s = 0.003, .row_s = 0.0009, .token_s = 0.0007};
  constexpr int kRequests = 64, kPrompt = 70;
  constexpr double kGap = 1.8;
  Scheduler scheduler({.step_tokens = 512, .longest_gap = kGap});
  for (int i = 0; i < kRequests; ++i) add(scheduler, static_cast<RequestId>(i + 1), kPrompt);
  double took = 0, longest = 0;
  while (scheduler.n_prefilling() > 0) {
    const std::span<const ScheduledRun> runs = scheduler.next();
    const double seconds = machine.step_s(runs);
    if (const int n_rows = scheduler.n_decoding(); n_rows > 0) {
      longest = std::max(longest, seconds / (machine.weights_s + n_rows * machine.row_s));
    }
    took += seconds;
    scheduler.finish(seconds);
  }
  const double reading = kRequests * kPrompt * machine.token_s;
  constexpr double kShortGap = 1.5 * kGap;  // they are short
  EXPECT_LT(took, 1.25 * reading * kShortGap / (kShortGap - 1));
  EXPECT_LT(longest, 1.25 * kShortGap);
}

// Reading the cache at this depth takes six plain steps, for one token as for five.
TEST(Scheduler, a_cache_that_takes_long_to_read_is_not_read_for_one_token_at_a_time) {
  const Machine machine{.weights_s = 0.003, .row_s = 0.0001, .token_s = 0.0007, .depth_s = 3e-7, .read_s = 2.3e-6};
  const Gaps gaps = read_long_prompt(machine, 1, 8000);
  EXPECT_LT(gaps.n_steps, 3500);  // a token at a time: 8,000
  EXPECT_LT(gaps.longest, 3 * 8000 * machine.read_s);
}

TEST(Scheduler, a_prompt_that_costs_little_is_read_in_large_chunks_beside_answers) {
  EXPECT_LT(read_long_prompt({.token_s = 1e-5, .depth_s = 0}, 4, 8000).n_steps, 25);
}

TEST(Checkpoints, lie_at_the_first_and_last_boundaries_before_the_end_and_at_intervals) {
  const std::vector<int> turns = {900, 100, 200, 300, 400, 500, -5, 1000, 5000, 300};
  EXPECT_EQ(choose_checkpoints(1000, 0, turns, 2048), (std::vector<int>{100, 400, 500, 900, 996}));
  EXPECT_EQ(choose_checkpoints(1000, 450, turns, 2048), (std::vector<int>{500, 900, 996}));
  EXPECT_EQ(choose_checkpoints(1000, 0, {}, 300), (std::vector<int>{300, 600, 900, 996}));
  EXPECT_TRUE(choose_checkpoints(3, 0, {}, 300).empty());
}

}  // namespace
}  // namespace zinc
