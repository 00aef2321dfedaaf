#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

namespace zinc {
namespace {

using Range = std::pair<size_t, size_t>;

std::set<Range> ranges_of(ThreadPool& pool, size_t n) {
  std::mutex mutex;
  std::set<Range> ranges;
  pool.parallel_for(n, [&](size_t begin, size_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.emplace(begin, end).second);
  });
  return ranges;
}

// The threads of two chunks that wait for each other.
std::array<std::thread::id, 2> threads_that_meet(ThreadPool& pool) {
  std::array<std::thread::id, 2> ids;
  std::atomic<int> n_here = 0;
  pool.parallel_for(2, [&](size_t begin, size_t) {
    ids[begin] = std::this_thread::get_id();
    ++n_here;
    while (n_here < 2) std::this_thread::yield();
  });
  return ids;
}

// Ranges that do not overlap, in order, without a gap: how much of [0, n) they cover.
size_t covered(const std::set<Range>& ranges) {
  size_t end = 0;
  for (const Range& range : ranges) {
    EXPECT_EQ(range.first, end);
    EXPECT_LT(range.first, range.second);
    end = range.second;
  }
  return end;
}

TEST(ThreadPool, chunks_cover_all_items) {
  ThreadPool pool(3);
  ASSERT_EQ(pool.n_threads(), 3);
  for (const size_t n : {0u, 1u, 2u, 10u, 1000u}) EXPECT_EQ(covered(ranges_of(pool, n)), n);
  const size_t most = std::numeric_limits<uint32_t>::max();
  const auto ranges = ranges_of(pool, most);
  EXPECT_EQ(covered(ranges), most);
  EXPECT_LE(ranges.size(), 3u * 33);  // a range of 2^32 / 3, halved each time
}

TEST(ThreadPool, every_item_runs_exactly_once) {
  for (const int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    for (size_t n = 0; n < 200; n += 7) {
      std::vector<int> n_done(n);
      pool.parallel_for(n, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++n_done[i];
      });
      EXPECT_EQ(n_done, std::vector<int>(n, 1));
    }
  }
}

TEST(ThreadPool, results_of_independent_items_do_not_depend_on_the_thread_count) {
  const auto compute = [](int n_threads) {
    ThreadPool pool(n_threads);
    std::vector<float> rows(1000);
    pool.parallel_for(1000, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        float sum = 0.0f;
        for (size_t k = 1; k < 100; ++k) sum += 1.0f / static_cast<float>(row * k + 1);
        rows[row] = sum;
      }
    });
    return rows;
  };
  const std::vector<float> alone = compute(1);
  EXPECT_EQ(compute(2), alone);
  EXPECT_EQ(compute(5), alone);
}

TEST(ThreadPool, thousands_of_dependent_steps_stay_in_order) {
  ThreadPool pool(2);
  std::vector<size_t> from(64, 1), to(64);
  for (int step = 0; step < 5000; ++step) {
    pool.parallel_for(64, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        to[i] = from[63 - i] + 1;  // reads the other thread's half
      }
    });
    std::swap(from, to);
  }
  EXPECT_EQ(from, std::vector<size_t>(64, 5001));
}

TEST(ThreadPool, sleeping_workers_wake_up_again) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than kSpins
    const auto ids = threads_that_meet(pool);
    EXPECT_NE(ids[0], ids[1]);
  }
}

TEST(ThreadPool, call_returns_after_the_slowest_worker) {
  ThreadPool pool(2);
  int value = 0;
  pool.parallel_for(2, [&](size_t begin, size_t) {
    if (begin == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    value = 7;
  });
  EXPECT_EQ(value, 7);
}

TEST(ThreadPool, nested_call_runs_inline) {
  ThreadPool pool(2), other(2);
  std::vector<int> n_done(8);
  pool.parallel_for(2, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto outer = std::this_thread::get_id();
      ThreadPool& nested = i == 0 ? pool : other;
      nested.parallel_for(4, [&, i](size_t from, size_t to) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        EXPECT_EQ(Range(from, to), Range(0, 4));
        for (size_t j = from; j < to; ++j) ++n_done[i * 4 + j];
      });
    }
  });
  EXPECT_EQ(n_done, std::vector<int>(8, 1));
  const auto ids = threads_that_meet(pool);  // the pool runs in parallel again afterwards
  EXPECT_NE(ids[0], ids[1]);
}

TEST(ThreadPool, chunks_run_on_different_threads) {
  ThreadPool pool(2);
  const auto ids = threads_that_meet(pool);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_TRUE(ids[0] == std::this_thread::get_id() || ids[1] == std::this_thread::get_id());
}

TEST(ThreadPool, work_of_a_delayed_thread_is_stolen) {
  ThreadPool pool(2);
  std::atomic<size_t> n_done = 0;
  pool.parallel_for(100, [&](size_t begin, size_t end) {
    while (begin == 0 && n_done < 75) std::this_thread::yield();  // the first chunk waits for all other items
    n_done += end - begin;
  });
  EXPECT_EQ(n_done, 100u);
}

TEST(ThreadPool, thread_indices_are_distinct) {
  ThreadPool pool(2);
  std::array<size_t, 2> numbers;
  std::array<std::thread::id, 2> ids;
  std::atomic<int> n_here = 0;
  pool.parallel_for(2, [&](size_t begin, size_t) {
    numbers[begin] = ThreadPool::current_thread();
    ids[begin] = std::this_thread::get_id();
    ++n_here;
    while (n_here < 2) std::this_thread::yield();
  });
  EXPECT_EQ(numbers[0] + numbers[1], 1u);
  EXPECT_EQ(ids[0] == std::this_thread::get_id(), numbers[0] == 0);
  EXPECT_EQ(ThreadPool::current_thread(), 0u);
}

TEST(ThreadPool, invalid_thread_counts_are_clamped) {
  EXPECT_EQ(ThreadPool(0).n_threads(), 1);
  EXPECT_EQ(ThreadPool(-3).n_threads(), 1);
  EXPECT_EQ(ThreadPool().n_threads(), default_thread_count());
  EXPECT_GE(default_thread_count(), 1);
}

TEST(ThreadPool, accepts_const_and_temporary_callables) {
  ThreadPool pool(2);
  std::atomic<size_t> sum = 0;
  const auto add = [&sum](size_t begin, size_t end) { sum += end - begin; };
  pool.parallel_for(10, add);
  auto mutable_add = [&sum, n_calls = std::atomic<int>(0)](size_t begin, size_t end) mutable {
    ++n_calls;
    sum += end - begin;
  };
  pool.parallel_for(10, mutable_add);
  EXPECT_EQ(sum, 20);
}

}  // namespace
}  // namespace zinc
