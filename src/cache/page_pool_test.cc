#include "cache/page_pool.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(PagePool, allocates_pages_in_order_so_that_a_single_sequence_is_contiguous) {
  PagePool pool(3);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.n_free(), 0);
}

TEST(PagePool, a_page_is_free_when_neither_a_sequence_nor_the_prefix_cache_holds_it) {
  PagePool pool(2);
  const PageId page = pool.allocate();
  pool.add_ref(page);
  pool.pin(page);
  pool.unpin(page);
  EXPECT_TRUE(pool.is_pinned(page));
  pool.unpin(page);
  EXPECT_EQ(pool.n_pinned(), 0);
  EXPECT_EQ(pool.n_cached(), 1);
  EXPECT_EQ(pool.n_free(), 1);
  pool.drop_ref(page);
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_EQ(pool.n_cached(), 0);
}

TEST(PagePool, a_page_shared_by_two_sequences_counts_once) {
  PagePool pool(4);
  const PageId page = pool.allocate();
  pool.pin(page);
  EXPECT_EQ(pool.n_pinned(), 1);
  pool.unpin(page);
  EXPECT_EQ(pool.n_pinned(), 1);
  EXPECT_EQ(pool.n_free(), 3);
}

}  // namespace
}  // namespace zinc
