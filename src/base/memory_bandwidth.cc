#include "base/memory_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "base/aligned_buffer.h"

namespace zinc {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 20;  // eight times the largest last-level cache a few cores share
constexpr size_t kLineWords = 64 / sizeof(uint64_t);
constexpr int kPasses = 4;

uint64_t sum_lines(const uint64_t* words, size_t n_lines) {
  uint64_t sums[kLineWords] = {};
  for (size_t line = 0; line < n_lines; ++line) {
    for (size_t i = 0; i < kLineWords; ++i) sums[i] += words[line * kLineWords + i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double measure_read_bytes_per_s(ThreadPool& threads) {
  using Clock = std::chrono::steady_clock;
  const AlignedBuffer buffer = AlignedBuffer::allocate(kBufferBytes);
  if (buffer.size() == 0) return 0;
  uint64_t* const words = buffer.as<uint64_t>();
  constexpr size_t kLines = kBufferBytes / sizeof(uint64_t) / kLineWords;
  // Written first: untouched pages all map to the zero page, which stays in the cache.
  threads.parallel_for(kLines, [&](size_t begin, size_t end) {
    for (size_t i = begin * kLineWords; i < end * kLineWords; ++i) words[i] = i;
  });
  std::atomic<uint64_t> total = 0;
  double best_s = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    threads.parallel_for(kLines, [&](size_t begin, size_t end) {
      total.fetch_add(sum_lines(words + begin * kLineWords, end - begin), std::memory_order_relaxed);
    });
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - start).count());
  }
  volatile uint64_t sink = total;  // keeps the sum from being optimized away
  (void)sink;
  return static_cast<double>(kBufferBytes) / best_s;
}

}  // namespace zinc
