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

TEST(CachePlan, fills_the_bytes_with_pages_and_keeps_one_to_copy_into) {
  const CacheDemand demand{.max_sequences = 4, .context = 320, .max_run = 32, .max_bytes = 8192 * 100};
  const CachePlan plan = plan_cache(layers(false, false), k_f32, demand).value();
  EXPECT_EQ(plan.sizes.n_pages, std::vector<int>{100});
  EXPECT_EQ(plan.sizes.n_slots, 4);
  EXPECT_EQ(plan.n_bytes, size_t{8192 * 100});
}

TEST(CachePlan, a_window_as_wide_as_numbers_go_holds_a_whole_sequence) {
  constexpr int kWidest = std::numeric_limits<int>::max();
  EXPECT_EQ(window_pages(kWidest, 512, 3200), pages_of(3200));
  EXPECT_EQ(window_pages(kWidest, kWidest, kWidest), pages_of(kWidest));
  EXPECT_EQ(pages_of(kWidest), 1 << 26);
}

TEST(CachePlan, a_window_takes_what_it_holds_and_a_share_for_the_tree) {
  const CacheDemand demand{.max_sequences = 2, .context = 3200, .max_run = 32, .max_bytes = 8192 * 1000};
  const CachePlan plan = plan_cache(layers(true, false), k_f32, demand).value();
  ASSERT_EQ(plan.sizes.n_pages.size(), 2u);
  EXPECT_EQ(plan.sizes.n_pages[1], 2 * window_pages(64, 32, 3200) + (plan.sizes.n_pages[0] - 1) / 4 + 1);
  EXPECT_LE(plan.n_bytes, demand.max_bytes);
}

TEST(CachePlan, a_window_never_spans_more_pages_than_it_says) {
  for (int window = 1; window < 100; ++window) {
    for (int run : {1, 2, 31, 32, 33}) {
      int most = 0;
      for (int begin = 200; begin < 264; ++begin) {
        most = std::max(most, (begin + run - 1) / kPageTokens - (begin - window + 1) / kPageTokens + 1);
      }
      EXPECT_EQ(window_pages(window, run, 10000), most) << window << " " << run;
    }
  }
}

TEST(CachePlan, a_context_that_does_not_fit_is_refused_and_the_one_that_does_is_named) {
  const CacheDemand demand{.max_sequences = 2, .context = 3200, .max_run = 32, .max_bytes = 8192 * 51};
  const Result<CachePlan> plan = plan_cache(layers(false, false), k_f32, demand);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(plan.error().message.find("a context of 1600 fits"), std::string::npos) << plan.error().message;
}

TEST(CachePlan, a_context_nobody_asked_for_shrinks_to_what_fits_several_times) {
  CacheDemand demand{.max_sequences = 4, .context = 100000, .may_shrink_context = true, .n_whole_contexts = 2};
  demand.max_bytes = 8192 * 101;
  EXPECT_EQ(plan_cache(layers(false, false), k_f32, demand).value().context, 1600);
  demand.max_bytes = 8192 * 4;
  EXPECT_FALSE(plan_cache(layers(false, false), k_f32, demand).ok());
}

TEST(CachePlan, more_memory_never_gives_a_smaller_context) {
  int last = 0;
  for (size_t n_bytes = 8192 * 30; n_bytes < size_t{8192} * 4000; n_bytes += 8192 * 13) {
    const CacheDemand demand{.max_sequences = 2, .context = 50000, .may_shrink_context = true, .max_bytes = n_bytes};
    const int context = plan_cache(layers(true, true), k_f32, demand).value().context;
    EXPECT_GE(context, last);
    last = context;
  }
}

TEST(CachePlan, recurrent_models_get_slots_for_states_to_keep) {
  const CacheDemand demand{.max_sequences = 4, .context = 320, .max_run = 32, .max_bytes = 8192 * 1000};
  const CachePlan plan = plan_cache(layers(false, true), k_f32, demand).value();
  EXPECT_GT(plan.sizes.n_slots, 4 + 8);
  EXPECT_LE(plan.n_bytes, demand.max_bytes);
}

}  // namespace
}  // namespace zinc
