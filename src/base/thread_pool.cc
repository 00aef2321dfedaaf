#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/platform/relax_cpu.h"

namespace zinc {
namespace {

constexpr int kMaxThreads = 1024;

// About 20 us on Zen 4 (35 ns per turn): longer than the gaps inside a decode step, and on a machine that others keep
// busy a sleeper gets its core back sooner than a spinner does.
constexpr int kSpins = 500;

thread_local bool inside_range = false;

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

}  // namespace

// With more threads than cores a spinner would keep the one it waits for from running.
ThreadPool::ThreadPool(int n_threads) : n_spins_(n_threads <= default_thread_count() ? kSpins : 0) {
  const auto n_workers = static_cast<size_t>(std::clamp(n_threads, 1, kMaxThreads) - 1);
  workers_.reserve(n_workers);
  try {
    for (size_t thread = 1; thread <= n_workers; ++thread) workers_.emplace_back(&ThreadPool::work, this, thread);
  } catch (const std::system_error&) {  // a limit on threads: the ones we have do the work
  }
  n_ranges_ = workers_.size() + 1;
}

ThreadPool::~ThreadPool() {
  job_ = {};
  n_jobs_.fetch_add(1);
  n_jobs_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  if (job.n == 0) return;
  if (workers_.empty() || job.n == 1 || inside_range) return job.call(job.callee, 0, job.n);

  ZINC_DCHECK(n_busy_.load() == 0);
  job_ = job;
  n_busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  n_jobs_.fetch_add(1);  // sequentially consistent, as is n_busy_'s: notify_all() must not look for sleepers before it
  n_jobs_.notify_all();
  run_range(0);
  uint32_t n_busy = n_busy_.load(std::memory_order_acquire);
  while (n_busy != 0) n_busy = wait_for_change(n_busy_, n_busy, n_spins_);
}

void ThreadPool::run_range(size_t thread) const {
  const size_t share = job_.n / n_ranges_, rest = job_.n % n_ranges_;  // n * t / T without overflow
  const auto start = [=, this](size_t t) { return share * t + rest * t / n_ranges_; };
  const size_t begin = start(thread), end = start(thread + 1);
  if (begin == end) return;
  inside_range = true;
  job_.call(job_.callee, begin, end);
  inside_range = false;
}

void ThreadPool::work(size_t thread) {
  for (uint32_t n_jobs = 0;;) {
    n_jobs = wait_for_change(n_jobs_, n_jobs, n_spins_);
    if (job_.call == nullptr) return;
    run_range(thread);
    if (n_busy_.fetch_sub(1) == 1) n_busy_.notify_one();
  }
}

}  // namespace zinc
