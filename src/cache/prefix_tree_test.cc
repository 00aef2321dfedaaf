#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace zinc {
namespace {

std::vector<TokenId> counting(int n, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A tree with pools of its own; sequences that take pages, are remembered and let go of everything.
struct Garden {
  explicit Garden(std::vector<int> windows, int n_pages = 64, int n_states = 0)
      : pools{.pages = std::vector<PagePool>(windows.size(), PagePool(n_pages)), .states = PagePool(n_states)},
        tree(windows, n_states > 0, pools),
        windows(std::move(windows)) {}

  PageTables take_pages(int n_tokens) {
    PageTables pages(windows.size());
    for (size_t g = 0; g < windows.size(); ++g) {
      for (int p = 0; p < (n_tokens + kPageTokens - 1) / kPageTokens; ++p) {
        if (pools.pages[g].n_free() == 0) tree.free_page(static_cast<int>(g));
        pages[g].push_back(pools.pages[g].take());
      }
    }
    return pages;
  }
  void let_go(const PageTables& pages) {
    for (size_t g = 0; g < windows.size(); ++g) {
      for (const PageId page : pages[g]) {
        if (page != kNoPage) pools.pages[g].unpin(page);
      }
    }
  }
  PrefixTree::Node* grow(const std::vector<TokenId>& tokens) {
    const PageTables pages = take_pages(static_cast<int>(tokens.size()));
    PrefixTree::Node* node = tree.insert(kEverybody, tokens, pages);
    let_go(pages);
    return node;
  }
  void grow_with_state(const std::vector<TokenId>& tokens) {
    PrefixTree::Node* node = grow(tokens);
    if (!tree.wants_state(*node)) return;
    if (pools.states.n_free() == 0) tree.free_state();
    const int slot = pools.states.take();
    tree.put_state(*node, slot);
    pools.states.unpin(slot);
  }
  PrefixMatch find(const std::vector<TokenId>& tokens) {
    return tree.find(kEverybody, tokens, static_cast<int>(tokens.size()) - 1);
  }

  CachePools pools;
  PrefixTree tree;
  std::vector<int> windows;
};

TEST(PrefixTree, finds_the_longest_common_beginning_to_the_token) {
  Garden garden({0});
  garden.grow(counting(100));
  const PrefixMatch match = garden.find(joined(counting(71), counting(30, 500)));
  EXPECT_EQ(match.n_usable, 71);
  EXPECT_EQ(match.n_common, 71);
  EXPECT_EQ(match.miss, CacheMiss::diverged);
  EXPECT_EQ(match.pages[0].size(), 3u);
  EXPECT_EQ(garden.find(counting(30, 7)).miss, CacheMiss::nothing);
  EXPECT_EQ(garden.find(counting(30, 7)).n_usable, 0);
}

TEST(PrefixTree, leaves_the_last_token_to_be_computed) {
  Garden garden({0});
  garden.grow(counting(100));
  const PrefixMatch match = garden.find(counting(64));
  EXPECT_EQ(match.n_usable, 63);
  EXPECT_EQ(match.n_common, 64);
  EXPECT_EQ(match.miss, CacheMiss::none);
}

TEST(PrefixTree, branches_inside_a_page_and_keeps_one_page_for_what_is_common) {
  Garden garden({0});
  garden.grow(joined(counting(40), counting(24, 100)));
  garden.grow(joined(counting(40), counting(24, 200)));
  EXPECT_EQ(garden.pools.pages[0].n_cached(), 3);  // the first page once, the second in two versions
  const PrefixMatch a = garden.find(joined(counting(40), counting(25, 100)));
  const PrefixMatch b = garden.find(joined(counting(40), counting(25, 200)));
  EXPECT_EQ(a.n_usable, 64);
  EXPECT_EQ(b.n_usable, 64);
  EXPECT_EQ(a.pages[0][0], b.pages[0][0]);
  EXPECT_NE(a.pages[0][1], b.pages[0][1]);
}

TEST(PrefixTree, gives_up_what_was_used_least_recently) {
  Garden garden({0}, 6);
  garden.grow(counting(64, 0));
  garden.grow(counting(64, 100));
  garden.grow(counting(64, 200));
  EXPECT_EQ(garden.find(counting(65, 0)).n_usable, 64);
  garden.grow(counting(64, 300));
  EXPECT_EQ(garden.find(counting(65, 100)).n_usable, 0);
  EXPECT_EQ(garden.find(counting(65, 0)).n_usable, 64);
  EXPECT_EQ(garden.find(counting(65, 300)).n_usable, 64);
}

TEST(PrefixTree, gives_up_the_end_of_a_text_before_its_beginning) {
  Garden garden({0}, 4);
  garden.grow(counting(128));
  garden.grow(counting(20, 500));
  EXPECT_EQ(garden.find(counting(129)).n_usable, 96);
}

TEST(PrefixTree, frees_pages_above_a_leaf_that_a_sequence_still_holds) {
  Garden garden({0}, 5);
  garden.grow(counting(64));
  const PageTables own = garden.take_pages(96);  // computed the same tokens again, and more
  garden.tree.insert(kEverybody, counting(96), own);
  ASSERT_EQ(garden.pools.pages[0].n_free(), 0);
  garden.take_pages(64);
  EXPECT_EQ(garden.pools.pages[0].n_pinned(), 5);
  EXPECT_EQ(garden.tree.n_nodes(), 0);
}

TEST(PrefixTree, a_recurrent_model_goes_on_only_from_a_state) {
  Garden garden({0}, 64, 4);
  garden.grow_with_state(counting(50));
  garden.grow(counting(90));
  const PrefixMatch match = garden.find(counting(100));
  EXPECT_EQ(match.n_usable, 50);
  EXPECT_EQ(match.n_common, 90);
  EXPECT_EQ(match.miss, CacheMiss::no_state);
  EXPECT_NE(match.state, kNoSlot);
  EXPECT_EQ(garden.find(counting(50)).n_usable, 0) << "the state after the last token says nothing of its logits";
}

TEST(PrefixTree, states_go_by_themselves_and_the_tokens_stay) {
  Garden garden({0}, 64, 2);
  garden.grow_with_state(counting(40, 0));
  garden.grow_with_state(counting(40, 100));
  EXPECT_EQ(garden.find(counting(41, 0)).n_usable, 40);
  garden.grow_with_state(counting(40, 200));
  EXPECT_EQ(garden.find(counting(41, 0)).n_usable, 40);
  const PrefixMatch match = garden.find(counting(41, 100));
  EXPECT_EQ(match.n_usable, 0);
  EXPECT_EQ(match.n_common, 40);
  EXPECT_EQ(match.miss, CacheMiss::no_state);
}

TEST(PrefixTree, a_model_without_pages_keeps_nothing_but_states) {
  Garden garden({}, 0, 2);
  garden.grow_with_state(counting(40, 0));
  garden.grow_with_state(counting(40, 100));
  garden.grow_with_state(counting(40, 200));
  EXPECT_EQ(garden.find(counting(41, 0)).n_common, 0) << "without its state it is forgotten";
  EXPECT_EQ(garden.find(counting(41, 200)).n_usable, 40);
  EXPECT_EQ(garden.tree.n_nodes(), 4);  // two pages of tokens each
}

TEST(PrefixTree, is_taken_down_however_long_its_texts_are) {
  Garden garden({}, 0, 1);
  garden.grow_with_state(counting(300'000 * kPageTokens));
  EXPECT_EQ(garden.tree.n_nodes(), 300'000);
}

TEST(PrefixTree, sliding_layers_keep_only_the_window_before_a_resting_place) {
  Garden garden({0, 40});
  garden.grow(counting(200));
  EXPECT_EQ(garden.pools.pages[0].n_cached(), 7);
  EXPECT_EQ(garden.pools.pages[1].n_cached(), 2);  // positions 161 .. 199
  const PrefixMatch match = garden.find(counting(201));
  EXPECT_EQ(match.n_usable, 200);
  EXPECT_EQ(match.pages[1][4], kNoPage);
  EXPECT_NE(match.pages[1][5], kNoPage);
  const PrefixMatch earlier = garden.find(joined(counting(150), counting(30, 900)));
  EXPECT_EQ(earlier.n_usable, 0);
  EXPECT_EQ(earlier.n_common, 150);
  EXPECT_EQ(earlier.miss, CacheMiss::window_gone);
}

TEST(PrefixTree, a_resting_place_on_the_way_makes_its_window_findable) {
  Garden garden({0, 40});
  garden.grow(counting(96));
  garden.grow(counting(200));
  EXPECT_EQ(garden.find(joined(counting(150), counting(30, 900))).n_usable, 96);
}

TEST(PrefixTree, losing_a_window_page_costs_only_those_who_look_back_to_it) {
  Garden garden({0, 40}, 8);
  garden.grow(counting(64, 0));
  garden.grow(counting(64, 100));
  EXPECT_EQ(garden.find(counting(65, 0)).n_usable, 64);
  for (int i = 0; i < 6; ++i) {  // until only the four least used pages are gone
    if (garden.pools.pages[1].n_free() > 0) garden.pools.pages[1].take();
  }
  garden.tree.free_page(1);
  const PrefixMatch match = garden.find(counting(65, 100));
  EXPECT_EQ(match.miss, CacheMiss::window_gone);
  EXPECT_EQ(match.n_usable, 32) << "what lies before the lost page is still there";
  EXPECT_EQ(garden.find(counting(65, 0)).n_usable, 64);
}

// Against the obvious: a list of all texts. Everything fits, so nothing may be forgotten.
TEST(PrefixTree, agrees_with_a_list_of_all_texts) {
  std::mt19937 random(7);
  Garden garden({0}, 4000);
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
    ASSERT_EQ(garden.find(text).n_common, static_cast<int>(longest)) << "round " << round;
    garden.grow(text);
    texts.push_back(std::move(text));
  }
  EXPECT_EQ(garden.pools.pages[0].n_pinned(), 0);
}

}  // namespace
}  // namespace zinc
