#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/checkpoints.h"

namespace zinc {
namespace {

struct Chunk {
  RequestId id;
  int begin, n_tokens;
  bool operator==(const Chunk&) const = default;
};
void PrintTo(const Chunk& entry, std::ostream* out) { *out << entry.id << ":" << entry.begin << "+" << entry.n_tokens; }

std::vector<Chunk> chunks_of(std::span<const ScheduledSequence> step) {
  std::vector<Chunk> chunks;
  for (const ScheduledSequence& entry : step) chunks.push_back({entry.id, entry.begin, entry.n_tokens});
  return chunks;
}

// The scheduled step was run.
void complete(Scheduler& scheduler, double seconds) {
  scheduler.start_step();
  scheduler.complete_step(seconds);
}

std::vector<Chunk> step(Scheduler& scheduler, double seconds = 0.01) {
  const std::vector<Chunk> chunks = chunks_of(scheduler.schedule_step());
  complete(scheduler, seconds);
  return chunks;
}

void add(Scheduler& scheduler, RequestId id, int n_prompt, const std::string& client = "a", int n_cached = 0,
         std::vector<int> chunk_ends = {}) {
  scheduler.enqueue(id, client);
  scheduler.admit(id, n_prompt, n_cached, {.chunk_ends = std::move(chunk_ends)});
}

TEST(Scheduler, prefills_a_prompt_in_chunks_then_decodes_one_token_per_step) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 100);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 64}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 64, 36}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 100, 1}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 101, 1}}));
  scheduler.remove(1);
  EXPECT_TRUE(scheduler.schedule_step().empty());
}

TEST(Scheduler, a_step_ahead_continues_after_the_tokens_in_flight) {
  Scheduler scheduler({.step_tokens = 64});
  add(scheduler, 1, 100);
  EXPECT_EQ(chunks_of(scheduler.schedule_step()), (std::vector<Chunk>{{1, 0, 64}}));
  scheduler.start_step();
  EXPECT_TRUE(scheduler.may_schedule_ahead());
  EXPECT_EQ(chunks_of(scheduler.schedule_ahead()), (std::vector<Chunk>{{1, 64, 36}}));
  scheduler.start_step();
  scheduler.complete_step(0.01);
  EXPECT_EQ(chunks_of(scheduler.schedule_ahead()), (std::vector<Chunk>{{1, 100, 1}}));
}

TEST(Scheduler, no_step_is_ahead_of_a_long_prefill_that_others_would_wait_for) {
  const auto may_schedule_ahead = [](SchedulerLimits limits, double step_s, bool has_waiting) {
    limits.step_tokens = 512;
    Scheduler scheduler(limits);
    add(scheduler, 1, 2000);
    step(scheduler, step_s);
    if (has_waiting) scheduler.enqueue(2, "b");
    scheduler.schedule_step();
    scheduler.start_step();
    return scheduler.may_schedule_ahead();
  };
  EXPECT_FALSE(may_schedule_ahead({}, 0.06, false)) << "a request that arrives would wait for both steps: 120 ms";
  EXPECT_TRUE(may_schedule_ahead({}, 0.04, false)) << "80 ms";
  EXPECT_FALSE(may_schedule_ahead({}, 0.04, true)) << "one waits already";
  EXPECT_TRUE(may_schedule_ahead({.max_sequences = 1}, 0.06, false)) << "it would wait for a running request anyway";
}

TEST(Scheduler, no_step_is_ahead_of_one_whose_time_prompts_wait_for) {
  Scheduler scheduler({.step_tokens = 64});
  add(scheduler, 1, 10);
  step(scheduler);
  add(scheduler, 2, 2000);
  EXPECT_EQ(chunks_of(scheduler.schedule_step()), (std::vector<Chunk>{{1, 10, 1}})) << "to measure it without prompts";
  scheduler.start_step();
  EXPECT_TRUE(scheduler.schedule_ahead().empty());
  scheduler.complete_step(0.01);
  EXPECT_EQ(scheduler.schedule_step().size(), 2u);
}

TEST(Scheduler, the_last_prompt_chunk_and_every_decode_row_sample_a_token) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 100);
  EXPECT_FALSE(scheduler.schedule_step()[0].samples_token);
  complete(scheduler, 0.01);
  EXPECT_TRUE(scheduler.schedule_step()[0].samples_token);
  complete(scheduler, 0.01);
  EXPECT_TRUE(scheduler.schedule_step()[0].samples_token);
}

TEST(Scheduler, cached_tokens_are_not_prefilled_again) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 100, "a", 90);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 90, 10}}));
}

TEST(Scheduler, chunks_end_at_checkpoints_and_others_use_the_rest_of_the_budget) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 100, "a", 0, {10, 80});
  add(scheduler, 2, 100);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 10}, {2, 0, 54}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 10, 64}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 74, 6}, {2, 54, 46}}));
}

TEST(Scheduler, every_decoding_request_gets_a_row_in_every_step) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5);
  add(scheduler, 2, 5);
  step(scheduler);
  add(scheduler, 3, 8000);
  int n_decode_only = 0;
  for (int i = 0; i < 60; ++i) {
    int n_tokens = 0;
    for (const Chunk& chunk : chunks_of(scheduler.schedule_step())) n_tokens += chunk.n_tokens;
    const std::vector<Chunk> chunks = step(scheduler, 0.001 * n_tokens);
    ASSERT_GE(chunks.size(), 2u);
    EXPECT_EQ(chunks[0], (Chunk{1, 5 + i, 1}));
    EXPECT_EQ(chunks[1], (Chunk{2, 5 + i, 1}));
    n_decode_only += chunks.size() == 2 ? 1 : 0;
  }
  EXPECT_EQ(n_decode_only, 2) << "one to measure a decode-only step, one to measure it again";
}

TEST(Scheduler, clients_split_the_prefill_budget_equally_and_leave_what_they_do_not_need) {
  Scheduler scheduler({.step_tokens = 90, .max_decode_slowdown = 2.2});
  for (const RequestId id : {1u, 2u, 3u}) add(scheduler, id, 1000, "greedy");
  add(scheduler, 4, 10, "modest");
  add(scheduler, 5, 1000, "other");
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 40}, {4, 0, 10}, {5, 0, 40}}));
}

TEST(Scheduler, the_least_served_client_goes_first_and_clients_take_turns) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 50, "busy");
  scheduler.enqueue(2, "busy");
  scheduler.enqueue(3, "busy");
  scheduler.enqueue(4, "new");
  scheduler.enqueue(5, "new");
  step(scheduler);
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{4, 5, 2, 3}))
      << "one request of the busy client is running";
  scheduler.remove(4);
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{5, 2, 3}));
  EXPECT_EQ(scheduler.n_waiting(), 3);
}

TEST(Scheduler, a_client_with_nothing_running_goes_before_less_served_clients_that_run) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5, "long");
  add(scheduler, 2, 500, "other");
  for (int i = 0; i < 5; ++i) step(scheduler);
  scheduler.remove(2);
  scheduler.enqueue(3, "long");
  scheduler.enqueue(4, "new");
  scheduler.enqueue(5, "long");
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{4, 3, 5}));
}

// New clients have nothing running and go first, but not for ever.
TEST(Scheduler, a_request_is_overtaken_a_bounded_number_of_times_however_many_clients_come) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5, "busy");
  for (RequestId id = 2; id <= 5; ++id) scheduler.enqueue(id, "busy");
  std::vector<RequestId> admitted;
  for (RequestId id = 100; id < 200; ++id) {
    scheduler.enqueue(id, std::to_string(id));
    step(scheduler);
    const RequestId first = scheduler.admission_order().front();
    scheduler.admit(first, 5, 0, {});
    admitted.push_back(first);
    if (admitted.size() > 1) scheduler.remove(admitted[admitted.size() - 2]);
  }
  for (RequestId id = 2; id <= 5; ++id) {
    EXPECT_LT(std::ranges::find(admitted, id) - admitted.begin(), 20 * static_cast<int>(id - 1)) << "request " << id;
  }
  EXPECT_LE(std::ranges::count_if(admitted, [](RequestId id) { return id < 100; }), 6) << "some of them, not all";
}

// However many requests have been overtaken, a new client waits for at most one of them.
TEST(Scheduler, overtaken_requests_take_at_most_every_second_turn) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  RequestId id = 1;
  for (int c = 0; c < 20; ++c) {
    add(scheduler, id++, 5, "busy " + std::to_string(c));
    for (int i = 0; i < 4; ++i) scheduler.enqueue(id++, "busy " + std::to_string(c));
  }
  for (int i = 0; i < 60; ++i) {
    const RequestId newcomer = id++;
    scheduler.enqueue(newcomer, "new " + std::to_string(i));
    int n_before = 0;
    for (RequestId first = 0; first != newcomer; ++n_before) {
      first = scheduler.admission_order().front();
      scheduler.admit(first, 5, 0, {});
      scheduler.remove(first);
    }
    EXPECT_LE(n_before, 2) << "newcomer " << i;
  }
}

TEST(Scheduler, a_request_does_not_inherit_the_age_of_one_that_was_withdrawn) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5, "busy");
  scheduler.enqueue(2, "busy");
  for (RequestId id = 100; id < 120; ++id) {
    scheduler.enqueue(id, std::to_string(id));
    scheduler.admit(id, 5, 0, {});
    scheduler.remove(id);
  }
  scheduler.enqueue(3, "busy");
  EXPECT_EQ(scheduler.admission_order().front(), 2u);
  scheduler.remove(2);
  scheduler.enqueue(200, "new");
  EXPECT_EQ(scheduler.admission_order().front(), 200u);
}

TEST(Scheduler, a_preempted_request_waits_before_all_that_arrived_after_it_and_prefills_again) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5);
  add(scheduler, 2, 5);
  add(scheduler, 3, 5);
  scheduler.enqueue(4, "a");
  step(scheduler);
  EXPECT_EQ(scheduler.preempt_youngest(), 3u);
  EXPECT_EQ(scheduler.preempt_youngest(), 2u);
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{2, 3, 4}));
  EXPECT_EQ(scheduler.n_running(), 1);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 5, 1}}));
  scheduler.admit(2, 6, 4, {});
  step(scheduler);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 7, 1}, {2, 6, 1}}));
  scheduler.remove(3);
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{4}));
}

TEST(Scheduler, a_resumed_request_is_the_youngest) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5);
  add(scheduler, 2, 5);
  EXPECT_EQ(scheduler.preempt_youngest(), 2u);
  add(scheduler, 3, 5, "b");
  scheduler.admit(2, 6, 0, {});
  EXPECT_EQ(scheduler.preempt_youngest(), 2u);
  EXPECT_EQ(scheduler.preempt_youngest(), 3u);
}

TEST(Scheduler, a_preempted_request_does_not_count_as_overtaken_by_those_admitted_before) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5, "busy");
  add(scheduler, 2, 5, "busy");
  for (RequestId id = 100; id < 120; ++id) add(scheduler, id, 5, std::to_string(id));
  for (RequestId id = 119; id >= 100; --id) {
    EXPECT_EQ(scheduler.preempt_youngest(), id);
    scheduler.remove(id);
  }
  EXPECT_EQ(scheduler.preempt_youngest(), 2u);
  scheduler.enqueue(200, "new");
  EXPECT_EQ(scheduler.admission_order(), (std::vector<RequestId>{200, 2}));
}

TEST(Scheduler, an_idle_client_gets_no_credit) {
  Scheduler scheduler({.step_tokens = 64, .max_decode_slowdown = 2.2});
  add(scheduler, 1, 5, "busy");
  for (int i = 0; i < 1000; ++i) step(scheduler);
  add(scheduler, 2, 5, "late");
  for (int i = 0; i < 100; ++i) step(scheduler);
  scheduler.enqueue(3, "late");
  scheduler.enqueue(4, "busy");
  EXPECT_EQ(scheduler.admission_order().front(), 4u)
      << "both got the same service since the second one arrived, except for its prompt";
}

// A model of step time on a CPU: a constant for the weights, a cost per token and per position it attends to, and a
// cost for reading the KV cache, once per chunk.
struct Machine {
  double weights_s = 0.010, row_s = 0.001, token_s = 0.001, depth_s = 2e-7, read_s = 0;
  double step_s(std::span<const ScheduledSequence> chunks) const {
    double rows = 0, tokens = 0, depth = 0, read = 0;
    for (const ScheduledSequence& entry : chunks) {
      if (entry.n_tokens == 1 && entry.samples_token) {
        rows += 1;
      } else {
        tokens += entry.n_tokens;
        depth += entry.n_tokens * (entry.begin + entry.n_tokens / 2.0);
        read += entry.begin;
      }
    }
    return weights_s + rows * row_s + tokens * token_s + depth * depth_s + read * read_s;
  }
};

struct StepTimes {
  double longest = 0, decode_only = 0;
  int n_steps = 0;
};
StepTimes prefill_long_prompt(const Machine& machine, int n_decoding, int n_prompt) {
  Scheduler scheduler({.step_tokens = 512, .max_decode_slowdown = 2.2});
  for (int i = 0; i < n_decoding; ++i) add(scheduler, static_cast<RequestId>(i + 1), 5);
  StepTimes times;
  for (int i = 0; i < 30; ++i) {
    times.decode_only = machine.step_s(scheduler.schedule_step());
    complete(scheduler, times.decode_only);
  }
  add(scheduler, 1000, n_prompt);
  while (scheduler.n_prefilling() > 0) {
    const double seconds = machine.step_s(scheduler.schedule_step());
    times.longest = std::max(times.longest, seconds);
    ++times.n_steps;
    complete(scheduler, seconds);
  }
  return times;
}

TEST(Scheduler, an_8000_token_prompt_makes_no_step_longer_than_four_decode_only_steps) {
  for (const int n_decoding : {1, 4, 64}) {
    for (const double token_s : {0.0001, 0.001, 0.01}) {
      for (const double depth_s : {0.0, 1e-7, 1e-6}) {
        const Machine machine{.token_s = token_s, .depth_s = depth_s, .read_s = 2e-7};
        const StepTimes times = prefill_long_prompt(machine, n_decoding, 8000);
        EXPECT_LE(times.longest, 4 * times.decode_only)
            << n_decoding << " decoding, " << token_s << " s/token, " << depth_s;
      }
    }
  }
}

// The cost of long prompts is known from a prompt of 512 tokens without a neighbor, at a small depth.
TEST(Scheduler, depth_that_makes_tokens_expensive_is_no_reason_for_long_chunks) {
  const Machine machine{.token_s = 0.0005, .depth_s = 1e-6};
  Scheduler scheduler({.step_tokens = 512, .max_decode_slowdown = 2.2});
  const auto run_step = [&] {
    const double seconds = machine.step_s(scheduler.schedule_step());
    complete(scheduler, seconds);
    return seconds;
  };
  add(scheduler, 1, 512);
  double decode_only = 0, longest = 0;
  for (int i = 0; i < 5; ++i) decode_only = run_step();
  add(scheduler, 2, 8000, "b");
  while (scheduler.n_prefilling() > 0) longest = std::max(longest, run_step());
  EXPECT_LE(longest, 4 * decode_only);
}

// Many prompts at once while the number of decoding requests grows: the time of a decode-only step has to be estimated
// for row counts that were never measured alone.
TEST(Scheduler, a_burst_of_short_prompts_makes_steps_of_about_100_ms_or_the_slowdown_limit) {
  const Machine machine{.weights_s = 0.003, .row_s = 0.0009, .token_s = 0.0007};
  constexpr int kRequests = 64, kPrompt = 70;
  constexpr double kSlowdown = 1.8;
  Scheduler scheduler({.step_tokens = 512, .max_decode_slowdown = kSlowdown});
  for (int i = 0; i < kRequests; ++i) add(scheduler, static_cast<RequestId>(i + 1), kPrompt);
  constexpr double kShortPromptSlowdown = 1.5 * kSlowdown;
  double took = 0;
  while (scheduler.n_prefilling() > 0) {
    const std::span<const ScheduledSequence> chunks = scheduler.schedule_step();
    const double seconds = machine.step_s(chunks);
    if (const int n_rows = scheduler.n_decoding(); n_rows > 0) {
      const double decode_only_s = machine.weights_s + n_rows * machine.row_s;
      EXPECT_LT(seconds, 1.3 * std::max(0.1, kShortPromptSlowdown * decode_only_s)) << n_rows << " rows";
    }
    took += seconds;
    complete(scheduler, seconds);
  }
  const double prefill_s = kRequests * kPrompt * machine.token_s;
  EXPECT_LT(took, 1.25 * prefill_s * kShortPromptSlowdown / (kShortPromptSlowdown - 1));
}

// Reading the KV cache at this depth takes six decode-only steps, for one token as for five.
TEST(Scheduler, an_expensive_cache_read_is_amortized_over_several_tokens) {
  const Machine machine{.weights_s = 0.003, .row_s = 0.0001, .token_s = 0.0007, .depth_s = 3e-7, .read_s = 2.3e-6};
  const StepTimes times = prefill_long_prompt(machine, 1, 8000);
  EXPECT_LT(times.n_steps, 3500);  // a token at a time: 8,000
  EXPECT_LT(times.longest, 3 * 8000 * machine.read_s);
}

TEST(Scheduler, a_cheap_prompt_is_prefilled_in_large_chunks_while_others_decode) {
  EXPECT_LT(prefill_long_prompt({.token_s = 1e-5, .depth_s = 0}, 4, 8000).n_steps, 25);
}

// A GPU: each token of a short chunk costs 4 ms, a long chunk 20 ms in all, a decode-only step 2 ms. Without the time
// of long chunks, those of prompts beside one decoding request would have two tokens each.
TEST(Scheduler, chunks_are_long_where_a_short_one_costs_as_much) {
  Scheduler scheduler({.step_tokens = 512, .max_decode_slowdown = 1.8});
  const auto run_step = [&] {
    int n_prefill = 0, n_decode = 0;
    for (const ScheduledSequence& entry : scheduler.schedule_step()) {
      (entry.n_tokens == 1 && entry.samples_token ? n_decode : n_prefill) += entry.n_tokens;
    }
    complete(scheduler, 0.001 * (n_prefill == 0 ? 2 : 2 + std::min(4 * n_prefill, 20 + n_prefill / 100)));
    return n_prefill;
  };
  add(scheduler, 1, 1024);
  for (int i = 0; i < 5; ++i) run_step();
  add(scheduler, 2, 16000, "b");
  int n_steps = 0;
  for (; scheduler.n_prefilling() > 0; ++n_steps) run_step();
  EXPECT_LT(n_steps, 16000 / 128);
}

TEST(Scheduler, prompts_over_256_tokens_are_passed_over_once_by_briefer_ones_that_fill_a_step) {
  Scheduler scheduler({.step_tokens = 512});
  add(scheduler, 1, 400);
  for (const RequestId id : {2u, 3u, 4u}) add(scheduler, id, 90);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{2, 0, 90}, {3, 0, 90}, {4, 0, 90}}));
  for (const RequestId id : {2u, 3u, 4u}) scheduler.remove(id);
  for (const RequestId id : {5u, 6u, 7u}) add(scheduler, id, 90);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 400}, {5, 0, 90}, {6, 0, 22}})) << "not again";
}

TEST(Scheduler, prompts_over_256_tokens_do_not_wait_for_a_few_briefer_ones) {
  Scheduler scheduler({.step_tokens = 512});
  add(scheduler, 1, 400);
  add(scheduler, 2, 90);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 400}, {2, 0, 90}}));
}

TEST(Scheduler, a_long_prompt_leaves_half_of_a_step_without_decode_rows_to_short_ones) {
  Scheduler scheduler({.step_tokens = 128});
  add(scheduler, 1, 5000);
  add(scheduler, 2, 90);
  add(scheduler, 3, 20, "b");
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 64}, {2, 0, 44}, {3, 0, 20}}));
  EXPECT_EQ(step(scheduler).size(), 1u) << "a decode-only step is measured first";
}

// Prompt tokens cost next to nothing, so that both lengths have the most tokens by which a chunk may grow.
TEST(Scheduler, a_long_prompt_leaves_half_of_the_budget_to_short_ones_where_theirs_is_not_larger) {
  Scheduler scheduler({.step_tokens = 512});
  add(scheduler, 1, 1);
  step(scheduler, 1e-6);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 1, 1}})) << "a decode-only step";
  add(scheduler, 2, 5000, "b");
  add(scheduler, 3, 90, "c");
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 2, 1}, {2, 0, 166}, {3, 0, 90}}));
}

// A machine on which a step of a prompt token or two costs much more than twice a step without.
TEST(Scheduler, short_prompts_are_not_starved_by_a_long_one_where_small_chunks_are_inefficient) {
  Scheduler scheduler({.step_tokens = 512, .max_decode_slowdown = 1.8});
  const auto run_step = [&] {
    int n_prefill = 0, n_decode = 0;
    for (const ScheduledSequence& entry : scheduler.schedule_step()) {
      (entry.n_tokens == 1 && entry.samples_token ? n_decode : n_prefill) += entry.n_tokens;
    }
    complete(scheduler,
             0.012 * n_decode + (n_prefill == 0 ? 0.0 : std::min(0.012 * n_prefill, 0.15) + 0.0012 * n_prefill));
  };
  add(scheduler, 1, 600);
  for (int i = 0; i < 5; ++i) run_step();
  add(scheduler, 2, 8192, "b");
  for (int i = 0; i < 20; ++i) run_step();
  add(scheduler, 3, 90, "c");
  int n_steps = 0;
  while (scheduler.n_prefilling() > 1 && n_steps < 100) {
    run_step();
    ++n_steps;
  }
  EXPECT_LT(n_steps, 8);
}

// Requests that repeat a long conversation have few new tokens.
TEST(Scheduler, a_long_prompt_with_a_cached_prefix_is_short) {
  Scheduler scheduler({.step_tokens = 512});
  add(scheduler, 1, 90);
  step(scheduler);
  step(scheduler);
  add(scheduler, 2, 5000, "a", 4900);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 91, 1}, {2, 4900, 100}}));
}

TEST(Scheduler, chunks_end_at_whole_scan_chunks_before_the_aligned_end) {
  Scheduler scheduler({.step_tokens = 200, .scan_chunk_tokens = 64});
  const auto add_aligned = [&](RequestId id, int n_prompt, const std::string& client, PromptSplit split) {
    scheduler.enqueue(id, client);
    scheduler.admit(id, n_prompt, 0, std::move(split));
  };
  add_aligned(1, 150, "a", {.chunk_ends = {64}, .aligned_end = 128});
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 64}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 64, 86}})) << "the scan chunk, and the tokens after it";
  scheduler.remove(1);
  // Half a step each is 100 tokens: the first one has one scan chunk, what it leaves is enough for two of the second.
  add_aligned(2, 300, "a", {.aligned_end = 256});
  add_aligned(3, 300, "b", {.aligned_end = 256});
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{2, 0, 64}, {3, 0, 128}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{2, 64, 64}, {3, 128, 136}}));
  // A resumed output: no chunk after the aligned end has a whole scan chunk.
  scheduler.remove(2);
  scheduler.remove(3);
  add_aligned(4, 230, "a", {.chunk_ends = {96, 160, 224}, .aligned_end = 64});
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{4, 0, 96}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{4, 96, 64}}));
}

// Experts are copied for chunks of 256 tokens, and the rest of a prompt has scan chunks of 64.
TEST(Scheduler, chunks_end_at_whole_scan_chunks_behind_the_last_prompt_chunk) {
  Scheduler scheduler({.step_tokens = 400, .scan_chunk_tokens = 256, .tail_chunk_tokens = 64});
  const auto add_aligned = [&](RequestId id, int n_prompt) {
    scheduler.enqueue(id, fmt::format("client {}", id));
    scheduler.admit(id, n_prompt, 0, {.aligned_end = n_prompt - n_prompt % 256, .tail_end = n_prompt - n_prompt % 64});
  };
  add_aligned(1, 500);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 0, 384}}));
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{1, 384, 116}}));
  scheduler.remove(1);
  add_aligned(2, 200);
  add_aligned(3, 500);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{2, 0, 200}})) << "half a step has no chunk of 256 tokens";
  scheduler.remove(2);
  EXPECT_EQ(step(scheduler), (std::vector<Chunk>{{3, 0, 384}}));
}

// Five clients have 20 tokens each: none of them a scan chunk.
TEST(Scheduler, one_prompt_gets_a_whole_scan_chunk_if_none_was_granted_one) {
  Scheduler scheduler({.step_tokens = 100, .scan_chunk_tokens = 64});
  for (RequestId id = 1; id <= 5; ++id) {
    scheduler.enqueue(id, fmt::format("client {}", id));
    scheduler.admit(id, 140, 0, {.aligned_end = 128});
  }
  std::map<RequestId, int> n_fed;
  for (int i = 0; i < 15; ++i) {
    int n_tokens = 0;
    for (const Chunk& chunk : step(scheduler)) {
      int& end = n_fed[chunk.id] += chunk.n_tokens;
      EXPECT_TRUE(end >= 128 || end % 64 == 0) << end;
      n_tokens += chunk.n_tokens;
    }
    EXPECT_LE(n_tokens, 100);
    EXPECT_GT(n_tokens, 0);
  }
  for (const auto& [id, n] : n_fed) EXPECT_GE(n, 128) << id;
}

TEST(Checkpoints, lie_at_whole_scan_chunks) {
  const std::vector<int> turns = {30, 100, 130, 500};
  EXPECT_EQ(choose_checkpoints(1000, 0, turns, 256, 64), (std::vector<int>{64, 128, 256, 448, 512, 768, 960}));
  EXPECT_EQ(choose_checkpoints(130, 64, turns, 256, 64), (std::vector<int>{}));
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
