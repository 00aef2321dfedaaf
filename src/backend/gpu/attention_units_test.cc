#include "backend/gpu/attention_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace zinc::gpu {
namespace {

// A step of sequences with these numbers of tokens, the last of each at this position.
struct TestStep {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, seq_begin = {0}, slots;

  void add(int n_tokens, int last_position) {
    for (int i = 0; i < n_tokens; ++i) positions.push_back(last_position - n_tokens + 1 + i);
    tokens.resize(positions.size());
    seq_begin.push_back(static_cast<int32_t>(positions.size()));
    slots.push_back(static_cast<int32_t>(slots.size()));
  }
  StepInputs inputs() const {
    return {.tokens = tokens,
            .positions = positions,
            .seq_begin = seq_begin,
            .slots = slots,
            .page_tables = {},
            .output_rows = {},
            .logit_rows = {},
            .hidden = {}};
  }
};

struct Cut {
  std::vector<AttentionUnit> units;
  std::vector<int> prefill_tokens;
};
Cut cut(const TestStep& step, int window, const AttentionUnitLimits& limits) {
  Cut out{std::vector<AttentionUnit>(static_cast<size_t>(limits.max_units)), std::vector<int>(step.tokens.size())};
  const int n = cut_attention_units(step.inputs(), window, limits, out.units, out.prefill_tokens);
  out.units.resize(static_cast<size_t>(n));
  return out;
}

constexpr Bucket kBucket{.max_tokens = 64, .max_seqs = 16, .max_outputs = 16};
constexpr int kChunks = 40;  // of the longest context

TEST(AttentionUnits, long_rows_are_cut_into_units_of_equal_size_and_short_ones_are_not) {
  TestStep step;
  step.add(1, 10 * kChunkPositions - 1);
  step.add(1, 100);
  const AttentionUnitLimits limits(kBucket, /*kv_heads=*/2, /*n_blocks=*/8, kChunks);
  EXPECT_EQ(limits.target_units, 4);
  const Cut out = cut(step, 0, limits);  // 11 chunks in units of 3
  ASSERT_EQ(out.units.size(), 5u);
  EXPECT_EQ(out.units[0].end_chunk, 3);
  EXPECT_EQ(out.units[3].first_chunk, 9);
  EXPECT_EQ(out.units[3].end_chunk, 10);
  EXPECT_EQ(out.units[3].n_units, 4);
  EXPECT_EQ(out.units[3].position, 10 * kChunkPositions - 1);
  EXPECT_EQ(out.units[4].token, 1);
  EXPECT_EQ(out.units[4].n_units, 1);
}

TEST(AttentionUnits, sliding_window_begins_at_the_chunk_of_its_oldest_position) {
  TestStep step;
  step.add(1, 2000);
  const Cut out = cut(step, 300, AttentionUnitLimits(kBucket, 1, 64, kChunks));  // positions 1701 .. 2000
  ASSERT_EQ(out.units.size(), 2u);
  EXPECT_EQ(out.units[0].first_chunk, 1701 / kChunkPositions);
  EXPECT_EQ(out.units[1].end_chunk, 2000 / kChunkPositions + 1);
}

TEST(AttentionUnits, sequences_with_many_tokens_have_no_split_rows) {
  TestStep step;
  step.add(kMaxSplitTokens + 1, 500);
  step.add(kMaxSplitTokens, 500);
  const Cut out = cut(step, 0, AttentionUnitLimits(kBucket, 1, 64, kChunks));
  for (size_t t = 0; t < step.tokens.size(); ++t) {
    EXPECT_EQ(out.prefill_tokens[t], static_cast<int>(t > kMaxSplitTokens ? step.tokens.size() : t));
  }
  ASSERT_EQ(out.units.size(), static_cast<size_t>(2 * kMaxSplitTokens)) << "two chunks each";
  for (const AttentionUnit& unit : out.units) {
    EXPECT_GT(unit.token, kMaxSplitTokens);
    EXPECT_EQ(unit.position, 500 - (static_cast<int>(step.tokens.size()) - 1 - unit.token));
    EXPECT_EQ(unit.n_cached, 500 - kMaxSplitTokens + 1) << "positions of this step are not cached";
  }
}

// Each chunk that a row sees is in exactly one unit, in order; partial results do not overlap and fit their memory; a
// row of one unit has none.
TEST(AttentionUnits, cover_each_visible_chunk_once_for_any_mix_of_lengths) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    TestStep step;
    const int n_seqs = 1 + below(16), window = round % 3 == 0 ? 1 + below(2000) : 0;
    for (int s = 0; s < n_seqs && step.tokens.size() < 48; ++s) {
      const int n_tokens = 1 + below(round % 2 == 0 ? 1 : 16);
      step.add(n_tokens, n_tokens + below(kChunks * kChunkPositions - n_tokens));
    }
    const AttentionUnitLimits limits(kBucket, 1 + below(8), 1 + below(264), kChunks);
    const Cut out = cut(step, window, limits);
    EXPECT_LE(out.units.size(), static_cast<size_t>(limits.max_units));
    std::map<int, std::vector<AttentionUnit>> units;
    for (const AttentionUnit& unit : out.units) units[unit.token].push_back(unit);
    int n_partials = 0;
    for (size_t s = 0; s + 1 < step.seq_begin.size(); ++s) {
      const bool is_split = step.seq_begin[s + 1] - step.seq_begin[s] <= kMaxSplitTokens;
      for (int t = step.seq_begin[s]; t < step.seq_begin[s + 1]; ++t) {
        ASSERT_EQ(out.prefill_tokens[static_cast<size_t>(t)] != t, is_split);
        ASSERT_EQ(!units[t].empty(), is_split);
        if (!is_split) continue;
        const int position = step.positions[static_cast<size_t>(t)];
        int next = window > 0 ? std::max(0, position - window + 1) / kChunkPositions : 0;
        const int n_chunks = position / kChunkPositions + 1 - next;
        for (const AttentionUnit& unit : units[t]) {
          ASSERT_EQ(unit.first_chunk, next);
          ASSERT_GT(unit.end_chunk, unit.first_chunk);
          ASSERT_EQ(unit.n_units, static_cast<int>(units[t].size()));
          ASSERT_EQ(unit.position, position);
          ASSERT_EQ(unit.first_partial, n_partials);
          next = unit.end_chunk;
        }
        ASSERT_EQ(next, position / kChunkPositions + 1);
        if (units[t].size() > 1) n_partials += n_chunks;
      }
    }
    ASSERT_LE(n_partials, limits.max_partials);
  }
}

TEST(AttentionUnits, rows_without_memory_for_their_chunks_are_one_unit) {
  TestStep step;
  for (int i = 0; i < kMaxSplitRows + 4; ++i) step.add(1, kChunks * kChunkPositions - 1);
  const Bucket bucket{.max_tokens = 64, .max_seqs = 64, .max_outputs = 64};
  const AttentionUnitLimits limits(bucket, 1, 264, kChunks);
  const Cut out = cut(step, 0, limits);
  const auto n_merged = std::ranges::count(out.units, 1, &AttentionUnit::n_units);
  EXPECT_EQ(n_merged, 4);
}

}  // namespace
}  // namespace zinc::gpu
