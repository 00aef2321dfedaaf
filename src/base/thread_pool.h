// Fork and join over contiguous ranges, for loops of a few microseconds: one call is one barrier. The caller works too,
// as thread 0. Range t of T is [n*t/T, n*(t+1)/T), so who does what depends on n and T alone. No allocation per call.
// One thread at a time may call; a call from inside a range runs inline. Between calls workers spin briefly, then
// sleep. The functions must not throw.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace zinc {

int default_thread_count();  // cores this process may run on (its affinity mask), at least 1

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads = default_thread_count());  // the caller counts as one; fewer if the system refuses
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(begin, end) once for each non-empty range of [0, n), on all threads at once; returns when all are done.
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
    void (*call)(const void* callee, size_t begin, size_t end);  // nullptr: the worker ends
    const void* callee;
    size_t n;
  };

  void run(const Job& job);
  void run_range(size_t thread) const;
  void work(size_t thread);

  std::vector<std::thread> workers_;
  int n_spins_;
  Job job_{};                                     // written between jobs only
  size_t n_ranges_ = 1;                           // of job_
  alignas(64) std::atomic<uint32_t> n_jobs_ = 0;  // counts up: a worker starts when it changes
  alignas(64) std::atomic<uint32_t> n_busy_ = 0;  // workers not yet done with job_
};

}  // namespace zinc
