// Fork and join over contiguous pieces, for loops of a few microseconds: one call is one barrier. The caller works too,
// as thread 0. Thread t of T starts at item n*t/T; one that has done its share takes from what others have left, so a
// thread which the system keeps from running delays a call by the piece it holds, and one that still sleeps is not
// waited for. Who does what is chance: an item's result must not depend on it. No allocation per call. One thread at a
// time may call; a call from inside a piece runs inline. Between calls workers spin briefly, then sleep. The functions
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
  explicit ThreadPool(int n_threads = default_thread_count());  // the caller counts as one; fewer if the system refuses
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Which thread of its pool runs the piece this is called from, so that each can have room of its own; 0 elsewhere.
  static size_t current_thread();

  // Calls fn(begin, end) for pieces that make up [0, n), on all threads at once; returns when all are done.
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

  // Items begin..end-1, nobody's yet: begin in the upper half, end in the lower. The owner takes from the front, others
  // from the back. Items of a job that is over are never here, so whoever takes some may read job_.
  struct alignas(64) Share {
    std::atomic<uint64_t> range = 0;
  };

  void run(const Job& job);
  void take_pieces(size_t thread);
  bool take_piece(Share& share, size_t thread, bool own);
  void work(size_t thread);

  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;
  size_t n_shares_ = 1;
  int n_spins_;
  Job job_{};
  std::atomic<bool> stopping_ = false;
  alignas(64) std::atomic<uint32_t> n_jobs_ = 0;  // counts up: a worker wakes when it changes
  alignas(64) std::atomic<uint32_t> n_done_ = 0;  // items of job_
};

}  // namespace zinc
