#include "base/thread_pool.h"

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/check.h"
#include "base/platform/relax_cpu.h"

namespace zinc {
namespace {

constexpr int kMaxThreads = 1024;

// About 20 us on Zen 4 (35 ns per iteration): longer than the gaps inside a decode step. On a busy machine a sleeping
// thread gets its core back sooner than a spinning one.
constexpr int kSpins = 500;

thread_local bool inside_chunk = false;
thread_local size_t this_thread_idx = 0;

// Returns the value, once it is no longer `old`.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, int n_spins) {
  for (int i = 0; i < n_spins; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    relax_cpu();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

constexpr uint64_t pack_range(uint64_t begin, uint64_t end) { return begin << 32 | end; }

}  // namespace

// Oversubscribed (more threads than cores), a spinning thread would block the one it waits for.
ThreadPool::ThreadPool(int n_threads) : n_spins_(n_threads <= default_thread_count() ? kSpins : 0) {
  const auto n_workers = static_cast<size_t>(std::clamp(n_threads, 1, kMaxThreads) - 1);
  workers_.reserve(n_workers);
  ranges_ = std::make_unique<WorkRange[]>(n_workers + 1);
  n_ranges_ = n_workers + 1;
  try {
    for (size_t thread = 1; thread <= n_workers; ++thread)
      workers_.emplace_back(&ThreadPool::worker_loop, this, thread);
  } catch (const std::system_error&) {  // thread limit reached: run with the threads created so far
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  n_jobs_.fetch_add(1);
  n_jobs_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  if (job.n == 0) return;
  if (workers_.empty() || job.n == 1 || inside_chunk) return job.call(job.callee, 0, job.n);

  ZINC_CHECK(job.n <= std::numeric_limits<uint32_t>::max());
  job_ = job;
  n_done_.store(0, std::memory_order_relaxed);
  const size_t T = n_ranges_;
  for (size_t t = 0; t < T; ++t) {
    ranges_[t].range.store(pack_range(job.n * t / T, job.n * (t + 1) / T), std::memory_order_release);
  }
  n_jobs_.fetch_add(1);  // seq_cst: must happen before notify_all() looks for waiters
  n_jobs_.notify_all();
  run_chunks(0);
  for (uint32_t n_done = n_done_.load(std::memory_order_acquire); n_done != job.n;) {
    n_done = wait_for_change(n_done_, n_done, n_spins_);
  }
}

// Claims half of the remaining range, from the front or the back, so that chunks shrink toward the end.
bool ThreadPool::run_chunk(WorkRange& work, size_t thread, bool is_owner) {
  uint64_t range = work.range.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t begin = range >> 32, end = range & 0xFFFFFFFF, size = (end - begin + 1) / 2;
    if (begin >= end) return false;
    const uint64_t rest = is_owner ? pack_range(begin + size, end) : pack_range(begin, end - size);
    if (!work.range.compare_exchange_weak(range, rest, std::memory_order_acquire)) continue;
    const uint64_t first = is_owner ? begin : end - size;
    const size_t n = job_.n;
    inside_chunk = true;
    this_thread_idx = thread;
    job_.call(job_.callee, first, first + size);
    this_thread_idx = 0;
    inside_chunk = false;
    if (n_done_.fetch_add(static_cast<uint32_t>(size)) + size == n) n_done_.notify_one();
    return true;
  }
}

void ThreadPool::run_chunks(size_t thread) {
  for (size_t i = 0; i < n_ranges_; ++i) {
    WorkRange& work = ranges_[(thread + i) % n_ranges_];
    while (run_chunk(work, thread, i == 0)) {
    }
  }
}

size_t ThreadPool::current_thread() { return this_thread_idx; }

void ThreadPool::worker_loop(size_t thread) {
  for (uint32_t n_jobs = 0;;) {
    n_jobs = wait_for_change(n_jobs_, n_jobs, n_spins_);
    if (stopping_.load()) return;
    run_chunks(thread);
  }
}

}  // namespace zinc
