#include "cache/cache_plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace zinc {
namespace {

// A page of the full layer takes 8192 bytes in f32, one of the sliding layer as much; a state 4096.
std::vector<LayerCache> layers(bool slides, bool recurs) {
  const AttentionCache full{.kv_heads = 1, .k_dim = 32, .v_dim = 32, .window = 0};
  AttentionCache sliding = full;
  sliding.window = 64;
  std::vector<LayerCache> out = {{full, {}}};
  if (slides) out.push_back({sliding, {}});
  if (recurs) out.push_back({{}, {.heads = 1, .k_dim = 32, .v_dim = 32}});
  return out;
}

TEST(CachePlan, fills_the_bytes_with_pages_and_reserves_one_for_copies) {
  const CacheRequirements requirements{
      .max_sequences = 4, .context = 320, .max_chunk_tokens = 32, .max_bytes = 8192 * 100};
  const CachePlan plan = plan_cache(layers(false, false), k_f32, requirements).value();
  EXPECT_EQ(plan.sizes.n_pages, std::vector<int>{100});
  EXPECT_EQ(plan.sizes.n_slots, 4);
  EXPECT_EQ(plan.n_bytes, size_t{8192 * 100});
}

TEST(CachePlan, a_window_of_int_max_holds_a_whole_sequence) {
  constexpr int kWidest = std::numeric_limits<int>::max();
  EXPECT_EQ(window_pages(kWidest, 512, 3200), pages_of(3200));
  EXPECT_EQ(window_pages(kWidest, kWidest, kWidest), pages_of(kWidest));
  EXPECT_EQ(pages_of(kWidest), 1 << 26);
}

TEST(CachePlan, a_windowed_group_gets_its_windows_and_a_fraction_for_the_prefix_cache) {
  const CacheRequirements requirements{
      .max_sequences = 2, .context = 3200, .max_chunk_tokens = 32, .max_bytes = 8192 * 1000};
  const CachePlan plan = plan_cache(layers(true, false), k_f32, requirements).value();
  ASSERT_EQ(plan.sizes.n_pages.size(), 2u);
  EXPECT_EQ(plan.sizes.n_pages[1], 2 * window_pages(64, 32, 3200) + (plan.sizes.n_pages[0] - 1) / 4 + 1);
  EXPECT_LE(plan.n_bytes, requirements.max_bytes);
}

TEST(CachePlan, window_pages_is_an_upper_bound) {
  for (int window = 1; window < 100; ++window) {
    for (int run : {1, 2, 31, 32, 33}) {
      int most = 0;
      for (int begin = 200; begin < 264; ++begin) {
        most = std::max(most, (begin + run - 1) / kPageTokens - (begin - window) / kPageTokens + 1);
      }
      EXPECT_EQ(window_pages(window, run, 10000), most) << window << " " << run;
    }
  }
}

TEST(CachePlan, a_context_that_does_not_fit_is_rejected_with_one_that_does) {
  CacheRequirements requirements{.max_sequences = 2, .context = 3200, .max_chunk_tokens = 32, .max_bytes = 8192 * 51};
  const Result<CachePlan> plan = plan_cache(layers(false, false), k_f32, requirements);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(plan.error().message.find("a context of 1600 fits"), std::string::npos) << plan.error().message;
  requirements.longest_context = 1024;
  const std::string capped = plan_cache(layers(false, false), k_f32, requirements).error().message;
  EXPECT_NE(capped.find("a context of 1024 fits: use -c 1024"), std::string::npos) << capped;
}

TEST(CachePlan, a_default_context_shrinks_until_several_sequences_fit) {
  CacheRequirements requirements{
      .max_sequences = 4, .context = 100000, .may_shrink_context = true, .n_full_contexts = 2};
  requirements.max_bytes = 8192 * 101;
  EXPECT_EQ(plan_cache(layers(false, false), k_f32, requirements).value().context, 1600);
  requirements.max_bytes = 8192 * 4;
  EXPECT_FALSE(plan_cache(layers(false, false), k_f32, requirements).ok());
}

TEST(CachePlan, more_memory_never_gives_a_smaller_context) {
  int last = 0;
  for (size_t n_bytes = 8192 * 30; n_bytes < size_t{8192} * 4000; n_bytes += 8192 * 13) {
    const CacheRequirements requirements{
        .max_sequences = 2, .context = 50000, .may_shrink_context = true, .max_bytes = n_bytes};
    const int context = plan_cache(layers(true, true), k_f32, requirements).value().context;
    EXPECT_GE(context, last);
    last = context;
  }
}

TEST(CachePlan, recurrent_models_get_slots_for_checkpoints) {
  const CacheRequirements requirements{
      .max_sequences = 4, .context = 320, .max_chunk_tokens = 32, .max_bytes = 8192 * 1000};
  const CachePlan plan = plan_cache(layers(false, true), k_f32, requirements).value();
  EXPECT_GT(plan.sizes.n_slots, 4 + 8);
  EXPECT_LE(plan.n_bytes, requirements.max_bytes);
}

}  // namespace
}  // namespace zinc
