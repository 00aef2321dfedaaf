// Fork-join thread pool with work stealing, for parallel loops of a few microseconds: one call is one barrier. The
// caller works too, as thread 0. Thread t of T starts at item n*t/T; a thread that has finished its range steals from
// the others, so a descheduled thread delays a call only by the chunk it holds, and a sleeping one is not waited for.
// The assignment of items to threads is not deterministic: results must not depend on it. No allocation per call. One
// thread at a time may call; a nested call runs inline. Between calls workers spin briefly, then sleep. The functions
// must not throw.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace zinc {

int default_thread_count();  // cores this process may run on (its affinity mask), at least 1

class ThreadPool {
 public:
  explicit ThreadPool(
      int n_threads = default_thread_count());  // includes the caller; fewer if threads cannot be created
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Index of the pool thread that runs the calling chunk, for per-thread scratch memory; 0 outside of a chunk.
  static size_t current_thread();

  // Calls fn(begin, end) on all threads for chunks that cover [0, n); returns when all are done.
  // REQUIRES: n < 2^32.
  template <class Fn>
  void parallel_for(size_t n, Fn&& fn) {
    using Callee = std::remove_reference_t<Fn>;
    const auto call = [](const void* callee, size_t begin, size_t end) {
      (*static_cast<Callee*>(const_cast<void*>(callee)))(begin, end);
    };
    run({call, &fn, n});
  }

 private:
  struct Job {
    void (*call)(const void* callee, size_t begin, size_t end);
    const void* callee;
    size_t n;
  };

  // Items begin..end-1 that no thread has claimed: begin in the upper half, end in the lower. The owner claims from the
  // front, thieves from the back. Holds only items of the current job, so a thread that claimed some may read job_.
  struct alignas(64) WorkRange {
    std::atomic<uint64_t> range = 0;
  };

  void run(const Job& job);
  void run_chunks(size_t thread);
  bool run_chunk(WorkRange& work, size_t thread, bool is_owner);
  void worker_loop(size_t thread);

  std::vector<std::thread> workers_;
  std::unique_ptr<WorkRange[]> ranges_;
  size_t n_ranges_ = 1;
  int n_spins_;
  Job job_{};
  std::atomic<bool> stopping_ = false;
  alignas(64) std::atomic<uint32_t> n_jobs_ = 0;  // workers wake when it changes
  alignas(64) std::atomic<uint32_t> n_done_ = 0;  // items of job_
};

}  // namespace zinc
