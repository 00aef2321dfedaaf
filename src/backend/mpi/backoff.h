// The pauses of a loop that polls: none at first, later a small part of the time that it has waited, so that a long
// wait takes little processor time and lasts hardly longer.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace zinc::mpi {

class Backoff {
 public:
  void pause() {
    using std::chrono::microseconds;
    constexpr microseconds kSpin(500), kLongest(2000);
    constexpr int kShare = 32;
    const Clock::duration waited = Clock::now() - begin_;
    if (waited < kSpin) return std::this_thread::yield();
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / kShare, kLongest));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace zinc::mpi
