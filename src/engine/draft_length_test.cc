#include "engine/draft_length.h"

#include <gtest/gtest.h>

#include <vector>

namespace zinc {
namespace {

// speedup = (1 - a^(k+1)) / ((1 - a) (k c + 1)), with the values of the cost model's source.
TEST(ExpectedTokens, over_the_cost_of_drafting_is_the_known_speedup) {
  EXPECT_NEAR(expected_tokens(0.7, 4) / (4 * 0.05 + 1), 2.31, 0.005);
  EXPECT_NEAR(expected_tokens(0.55, 4) / (4 * 0.2 + 1), 1.17, 0.005);
  EXPECT_NEAR(expected_tokens(0.55, 4) / (4 * 0.3 + 1), 0.96, 0.005);
  EXPECT_EQ(expected_tokens(1, 3), 4);
  EXPECT_EQ(expected_tokens(0, 3), 1);
}

void observe_twice(StepCost& cost, int n_rows, double seconds) {
  for (int i = 0; i < 2; ++i) cost.observe(n_rows, seconds);
}

TEST(StepCost, is_interpolated_between_measurements_and_estimated_low_above_them) {
  StepCost cost;
  EXPECT_EQ(cost.seconds(1), 0);
  observe_twice(cost, 1, 1.0);
  EXPECT_LT(cost.seconds(8), 1.2);
  observe_twice(cost, 5, 3.0);
  EXPECT_DOUBLE_EQ(cost.seconds(3), 2.0);
  EXPECT_DOUBLE_EQ(cost.seconds(5), 3.0);
  EXPECT_GT(cost.seconds(6), 3.0);
}

TEST(StepCost, one_slow_step_changes_little_and_old_measurements_are_dropped) {
  StepCost cost;
  observe_twice(cost, 1, 1.0);
  cost.observe(1, 100.0);
  EXPECT_LT(cost.seconds(1), 1.5);
  observe_twice(cost, 8, 4.0);
  for (int i = 0; i < 2000; ++i) cost.observe(1, 1.0);
  EXPECT_LT(cost.seconds(8), 1.2);
}

TEST(StepCost, the_first_step_of_a_number_of_rows_does_not_count) {
  StepCost cost;
  cost.observe(1, 50.0);
  EXPECT_FALSE(cost.is_known(1));
  EXPECT_EQ(cost.seconds(1), 0);
  cost.observe(1, 1.0);
  EXPECT_TRUE(cost.is_known(1));
  EXPECT_DOUBLE_EQ(cost.seconds(1), 1.0);
}

TEST(StepCost, plain_steps_are_unknown_again_if_all_steps_have_drafts) {
  StepCost cost;
  observe_twice(cost, 1, 1.0);
  for (int i = 0; i < 2000; ++i) cost.observe(2, 1.3);
  EXPECT_FALSE(cost.is_known(1));
}

StepCost linear_cost(double per_row) {
  StepCost cost;
  for (int rows = 1; rows <= 64; ++rows) observe_twice(cost, rows, 1 + per_row * (rows - 1));
  return cost;
}

TEST(DraftLengths, grow_with_the_acceptance_and_shrink_with_the_cost_of_a_row) {
  const auto length = [](double acceptance, double per_row) {
    const StepCost cost = linear_cost(per_row);
    std::vector<DraftLength> lengths = {{.acceptance = acceptance, .max_tokens = 7}};
    choose_draft_lengths(lengths, {.steps = &cost, .n_rows = 1, .max_rows = 8});
    return lengths[0].n_tokens;
  };
  EXPECT_EQ(length(0.95, 0.05), 7);
  EXPECT_GT(length(0.8, 0.1), length(0.5, 0.1));
  EXPECT_GT(length(0.8, 0.05), length(0.8, 0.3));
  EXPECT_EQ(length(0.2, 0.3), 0);  // a row costs more than it yields
  EXPECT_EQ(length(0.9, 1.0), 0);
}

TEST(DraftLengths, are_zero_before_a_plain_step_was_measured) {
  const StepCost cost;
  std::vector<DraftLength> lengths = {{.acceptance = 0.9, .max_tokens = 7}};
  EXPECT_EQ(choose_draft_lengths(lengths, {.steps = &cost, .n_rows = 1, .max_rows = 8}), 1);
  EXPECT_EQ(lengths[0].n_tokens, 0);
}

TEST(DraftLengths, go_to_the_sequences_with_the_highest_acceptance_within_the_limit_of_rows) {
  const StepCost cost = linear_cost(0.02);
  std::vector<DraftLength> lengths = {{.acceptance = 0.3, .max_tokens = 7}, {.acceptance = 0.9, .max_tokens = 7}};
  choose_draft_lengths(lengths, {.steps = &cost, .n_rows = 2, .max_rows = 6});
  EXPECT_EQ(lengths[0].n_tokens + lengths[1].n_tokens, 4);
  EXPECT_EQ(lengths[1].n_tokens, 4);
}

TEST(DraftLengths, count_the_rounds_of_a_drafter_that_runs_a_model_once_for_all_sequences) {
  const StepCost cost = linear_cost(0.02);
  const auto chosen = [&](size_t n_sequences, double round_s) {
    std::vector<DraftLength> lengths(n_sequences, {.acceptance = 0.7, .max_tokens = 7, .runs_model = true});
    const DraftCost with{.steps = &cost, .round_s = round_s, .n_rows = static_cast<int>(n_sequences), .max_rows = 64};
    choose_draft_lengths(lengths, with);
    return lengths[0].n_tokens;
  };
  EXPECT_GT(chosen(1, 0.05), chosen(1, 0.3));
  EXPECT_EQ(chosen(1, 0.9), 0);
  EXPECT_GE(chosen(8, 0.3), chosen(1, 0.3));
}

TEST(DraftLengths, cannot_pay_where_rows_cost_as_much_as_they_yield) {
  const StepCost cheap = linear_cost(0.05), expensive = linear_cost(1);
  EXPECT_TRUE(can_drafts_pay({.steps = &cheap, .n_rows = 1, .max_rows = 8}));
  EXPECT_FALSE(can_drafts_pay({.steps = &expensive, .n_rows = 1, .max_rows = 8}));
  EXPECT_FALSE(can_drafts_pay({.steps = &cheap, .n_rows = 60, .max_rows = 62}));
}

TEST(AcceptanceRate, starts_at_the_prior_and_follows_the_observations) {
  AcceptanceRate rate(0.7, 3, 0.9);
  EXPECT_DOUBLE_EQ(rate.rate(), 0.7);
  for (int i = 0; i < 20; ++i) rate.observe(4, 0);
  EXPECT_LT(rate.rate(), 0.2);
  for (int i = 0; i < 20; ++i) rate.observe(4, 4);
  EXPECT_GT(rate.rate(), 0.9);
}

}  // namespace
}  // namespace zinc
