#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace zinc {
namespace {

std::vector<TokenId> ascending(int n, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A prefix cache with its own pools, and sequences that allocate pages, are inserted and release everything.
struct PrefixCacheFixture {
  explicit PrefixCacheFixture(std::vector<int> windows, int n_pages = 64, int n_states = 0)
      : pools{.pages = std::vector<PagePool>(windows.size(), PagePool(n_pages)), .states = PagePool(n_states)},
        prefix_cache(windows, n_states > 0, pools),
        windows(std::move(windows)) {}

  PageTables allocate_pages(int n_tokens) {
    PageTables pages(windows.size());
    for (size_t g = 0; g < windows.size(); ++g) {
      for (int p = 0; p < (n_tokens + kPageTokens - 1) / kPageTokens; ++p) {
        if (pools.pages[g].n_free() == 0) prefix_cache.evict_page(static_cast<int>(g));
        pages[g].push_back(pools.pages[g].allocate());
      }
    }
    return pages;
  }
  void release(const PageTables& pages) {
    for (size_t g = 0; g < windows.size(); ++g) {
      for (const PageId page : pages[g]) {
        if (page != kNoPage) pools.pages[g].unpin(page);
      }
    }
  }
  PrefixCache::Node* insert(const std::vector<TokenId>& tokens) {
    const PageTables pages = allocate_pages(static_cast<int>(tokens.size()));
    PrefixCache::Node* node = prefix_cache.insert(kSharedNamespace, tokens, pages);
    release(pages);
    return node;
  }
  void insert_with_state(const std::vector<TokenId>& tokens) {
    PrefixCache::Node* node = insert(tokens);
    if (!prefix_cache.lacks_state(*node)) return;
    if (pools.states.n_free() == 0) prefix_cache.evict_state();
    const int slot = pools.states.allocate();
    prefix_cache.attach_state(*node, slot);
    pools.states.unpin(slot);
  }
  PrefixMatch find(const std::vector<TokenId>& tokens) {
    return prefix_cache.find(kSharedNamespace, tokens, static_cast<int>(tokens.size()) - 1);
  }

  CachePools pools;
  PrefixCache prefix_cache;
  std::vector<int> windows;
};

TEST(PrefixCache, finds_the_longest_common_prefix_to_the_token) {
  PrefixCacheFixture fixture({0});
  fixture.insert(ascending(100));
  const PrefixMatch match = fixture.find(joined(ascending(71), ascending(30, 500)));
  EXPECT_EQ(match.n_usable, 71);
  EXPECT_EQ(match.n_common, 71);
  EXPECT_EQ(match.miss, CacheMiss::diverged);
  EXPECT_EQ(match.pages[0].size(), 3u);
  EXPECT_EQ(fixture.find(ascending(30, 7)).miss, CacheMiss::nothing);
  EXPECT_EQ(fixture.find(ascending(30, 7)).n_usable, 0);
}

TEST(PrefixCache, leaves_the_last_token_to_be_computed) {
  PrefixCacheFixture fixture({0});
  fixture.insert(ascending(100));
  const PrefixMatch match = fixture.find(ascending(64));
  EXPECT_EQ(match.n_usable, 63);
  EXPECT_EQ(match.n_common, 64);
  EXPECT_EQ(match.miss, CacheMiss::none);
}

TEST(PrefixCache, branches_inside_a_page_and_shares_the_page_of_the_common_prefix) {
  PrefixCacheFixture fixture({0});
  fixture.insert(joined(ascending(40), ascending(24, 100)));
  fixture.insert(joined(ascending(40), ascending(24, 200)));
  EXPECT_EQ(fixture.pools.pages[0].n_cached(), 3);  // the first page once, the second in two versions
  const PrefixMatch a = fixture.find(joined(ascending(40), ascending(25, 100)));
  const PrefixMatch b = fixture.find(joined(ascending(40), ascending(25, 200)));
  EXPECT_EQ(a.n_usable, 64);
  EXPECT_EQ(b.n_usable, 64);
  EXPECT_EQ(a.pages[0][0], b.pages[0][0]);
  EXPECT_NE(a.pages[0][1], b.pages[0][1]);
}

TEST(PrefixCache, evicts_the_least_recently_used_prefix) {
  PrefixCacheFixture fixture({0}, 6);
  fixture.insert(ascending(64, 0));
  fixture.insert(ascending(64, 100));
  fixture.insert(ascending(64, 200));
  EXPECT_EQ(fixture.find(ascending(65, 0)).n_usable, 64);
  fixture.insert(ascending(64, 300));
  EXPECT_EQ(fixture.find(ascending(65, 100)).n_usable, 0);
  EXPECT_EQ(fixture.find(ascending(65, 0)).n_usable, 64);
  EXPECT_EQ(fixture.find(ascending(65, 300)).n_usable, 64);
}

TEST(PrefixCache, evicts_the_end_of_a_text_before_its_start) {
  PrefixCacheFixture fixture({0}, 4);
  fixture.insert(ascending(128));
  fixture.insert(ascending(20, 500));
  EXPECT_EQ(fixture.find(ascending(129)).n_usable, 96);
}

TEST(PrefixCache, limited_namespace_loses_its_oldest_prefixes_and_the_ends_first) {
  PrefixCacheFixture at({0}, 64);
  const int n_page_tokens = kPageTokens;
  at.insert(ascending(4 * n_page_tokens));
  at.insert(ascending(4 * n_page_tokens, 5000));
  at.prefix_cache.limit_namespace(kSharedNamespace + 1, 0);
  EXPECT_EQ(at.pools.pages[0].n_cached(), 8) << "another namespace";
  at.prefix_cache.limit_namespace(kSharedNamespace, 6.0 / 64);
  EXPECT_EQ(at.pools.pages[0].n_cached(), 6);
  EXPECT_EQ(at.prefix_cache.find(kSharedNamespace, ascending(200), 200).n_usable, 2 * n_page_tokens);
  EXPECT_EQ(at.prefix_cache.find(kSharedNamespace, ascending(200, 5000), 200).n_usable, 4 * n_page_tokens);
  at.prefix_cache.limit_namespace(kSharedNamespace, 0);
  EXPECT_EQ(at.pools.pages[0].n_cached(), 0);
  EXPECT_EQ(at.prefix_cache.n_nodes(), 0);
}

TEST(PrefixCache, frees_pages_above_a_leaf_that_a_sequence_still_holds) {
  PrefixCacheFixture fixture({0}, 5);
  fixture.insert(ascending(64));
  const PageTables own = fixture.allocate_pages(96);  // computed the same tokens again, and more
  fixture.prefix_cache.insert(kSharedNamespace, ascending(96), own);
  ASSERT_EQ(fixture.pools.pages[0].n_free(), 0);
  fixture.allocate_pages(64);
  EXPECT_EQ(fixture.pools.pages[0].n_pinned(), 5);
  EXPECT_EQ(fixture.prefix_cache.n_nodes(), 0);
}

TEST(PrefixCache, a_recurrent_model_resumes_only_from_a_state) {
  PrefixCacheFixture fixture({0}, 64, 4);
  fixture.insert_with_state(ascending(50));
  fixture.insert(ascending(90));
  const PrefixMatch match = fixture.find(ascending(100));
  EXPECT_EQ(match.n_usable, 50);
  EXPECT_EQ(match.n_common, 90);
  EXPECT_EQ(match.miss, CacheMiss::no_state);
  EXPECT_NE(match.state, kNoSlot);
  EXPECT_EQ(fixture.find(ascending(50)).n_usable, 0)
      << "the logits of the last token cannot be computed from the state after it";
}

TEST(PrefixCache, states_are_evicted_separately_and_the_tokens_stay) {
  PrefixCacheFixture fixture({0}, 64, 2);
  fixture.insert_with_state(ascending(40, 0));
  fixture.insert_with_state(ascending(40, 100));
  EXPECT_EQ(fixture.find(ascending(41, 0)).n_usable, 40);
  fixture.insert_with_state(ascending(40, 200));
  EXPECT_EQ(fixture.find(ascending(41, 0)).n_usable, 40);
  const PrefixMatch match = fixture.find(ascending(41, 100));
  EXPECT_EQ(match.n_usable, 0);
  EXPECT_EQ(match.n_common, 40);
  EXPECT_EQ(match.miss, CacheMiss::no_state);
}

TEST(PrefixCache, a_model_without_kv_pages_caches_only_states) {
  PrefixCacheFixture fixture({}, 0, 2);
  fixture.insert_with_state(ascending(40, 0));
  fixture.insert_with_state(ascending(40, 100));
  fixture.insert_with_state(ascending(40, 200));
  EXPECT_EQ(fixture.find(ascending(41, 0)).n_common, 0) << "without its state it is pruned";
  EXPECT_EQ(fixture.find(ascending(41, 200)).n_usable, 40);
  EXPECT_EQ(fixture.prefix_cache.n_nodes(), 4);  // two pages of tokens each
}

TEST(PrefixCache, is_destroyed_without_recursion_for_any_length) {
  PrefixCacheFixture fixture({}, 0, 1);
  fixture.insert_with_state(ascending(300'000 * kPageTokens));
  EXPECT_EQ(fixture.prefix_cache.n_nodes(), 300'000);
}

TEST(PrefixCache, sliding_layers_keep_only_the_window_before_a_checkpoint) {
  PrefixCacheFixture fixture({0, 40});
  fixture.insert(ascending(200));
  EXPECT_EQ(fixture.pools.pages[0].n_cached(), 7);
  EXPECT_EQ(fixture.pools.pages[1].n_cached(), 2);  // positions 161 .. 199
  const PrefixMatch match = fixture.find(ascending(201));
  EXPECT_EQ(match.n_usable, 200);
  EXPECT_EQ(match.pages[1][4], kNoPage);
  EXPECT_NE(match.pages[1][5], kNoPage);
  const PrefixMatch earlier = fixture.find(joined(ascending(150), ascending(30, 900)));
  EXPECT_EQ(earlier.n_usable, 0);
  EXPECT_EQ(earlier.n_common, 150);
  EXPECT_EQ(earlier.miss, CacheMiss::window_gone);
}

TEST(PrefixCache, an_earlier_checkpoint_makes_its_window_usable) {
  PrefixCacheFixture fixture({0, 40});
  fixture.insert(ascending(96));
  fixture.insert(ascending(200));
  EXPECT_EQ(fixture.find(joined(ascending(150), ascending(30, 900))).n_usable, 96);
}

TEST(PrefixCache, an_evicted_window_page_affects_only_positions_whose_window_has_it) {
  PrefixCacheFixture fixture({0, 40}, 8);
  fixture.insert(ascending(64, 0));
  fixture.insert(ascending(64, 100));
  EXPECT_EQ(fixture.find(ascending(65, 0)).n_usable, 64);
  for (int i = 0; i < 6; ++i) {  // until only the four least recently used pages are evicted
    if (fixture.pools.pages[1].n_free() > 0) fixture.pools.pages[1].allocate();
  }
  fixture.prefix_cache.evict_page(1);
  const PrefixMatch match = fixture.find(ascending(65, 100));
  EXPECT_EQ(match.miss, CacheMiss::window_gone);
  EXPECT_EQ(match.n_usable, 32) << "the prefix before the evicted page is still usable";
  EXPECT_EQ(fixture.find(ascending(65, 0)).n_usable, 64);
}

// Compared with a list of all texts. Everything fits, so nothing may be evicted.
TEST(PrefixCache, agrees_with_a_list_of_all_texts) {
  std::mt19937 random(7);
  PrefixCacheFixture fixture({0}, 4000);
  std::vector<std::vector<TokenId>> texts;
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> text;
    if (!texts.empty() && random() % 4 != 0) {
      text = texts[random() % texts.size()];
      text.resize(random() % (text.size() + 1));
    }
    for (size_t n = 1 + random() % 70; n > 0; --n) text.push_back(static_cast<TokenId>(random() % 3));
    size_t longest = 0;
    for (const std::vector<TokenId>& known : texts) {
      longest = std::max(longest, static_cast<size_t>(std::ranges::mismatch(known, text).in2 - text.begin()));
    }
    ASSERT_EQ(fixture.find(text).n_common, static_cast<int>(longest)) << "round " << round;
    fixture.insert(text);
    texts.push_back(std::move(text));
  }
  EXPECT_EQ(fixture.pools.pages[0].n_pinned(), 0);
}

}  // namespace
}  // namespace zinc
