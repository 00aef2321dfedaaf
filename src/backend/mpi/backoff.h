// The pauses of a loop that polls: none at first, later a small part of the time that it has waited, so that a long
// wait takes little processor time and lasts hardly longer. It sleeps and does not yield: on a busy machine a thread
// that yields waits for a time slice of another, a thread that wakes up does not.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace zinc::mpi {

class Backoff {
 public:
  void pause() {
    using std::chrono::microseconds;
    constexpr microseconds kSpin(100), kLongest(2000);
    constexpr int kShare = 32;
    const Clock::duration waited = Clock::now() - begin_;
    if (waited > kSpin) std::this_thread::sleep_for(std::min<Clock::duration>(waited / kShare, kLongest));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace zinc::mpi
