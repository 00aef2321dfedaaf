// The blocks of a cluster on the host: each thread is a fiber, and they take turns on the caller's thread. They give up
// their turn only where CUDA lets them wait for each other, so that a run is the same every time; threads that wait for
// what never comes are an error that names the kernel. A cluster can be left where its threads wait for the launch
// before it, or where it lets the next one start: others run meanwhile in the same memory, so it takes its own along.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/emulated_gpu/device/turns.h"

namespace zinc::emulated {

// One block: what its threads do, and the shared memory they do it in, which lies in an image of the kernel. Images of
// the same kernel differ in nothing but their place, which is how a block finds another's shared memory.
struct Block {
  std::function<void()> body;
  std::span<char> shared;
  std::span<const char> behind;  // what follows the shared memory that the launch asked for: nobody may write there
  EmulatedIndex index;
};

// What blocks of a launch have in common.
struct LaunchFacts {
  std::string kernel;  // its name, for messages
  EmulatedIndex grid;
  unsigned n_threads;         // of a block
  unsigned shared_bytes;      // that it asks for, beside what the kernel declares
  bool starts_early = false;  // may be begun before the launches before it have ended
};

class Cluster {
 public:
  Cluster(const LaunchFacts& launch, std::vector<Block> blocks);
  ~Cluster();
  Cluster(Cluster&&) = delete;

  enum class Goal { lets_next_start, end };
  // Until the goal is reached, or, while the launches before have not ended, until all that is left waits for them.
  void run(Goal goal, bool have_previous_ended);
  bool has_ended() const;
  bool lets_next_start() const;  // has said so, or has ended
  bool has_waited() const;       // for the launches before, or would have

  class Running;

 private:
  std::unique_ptr<Running> running_;
};

}  // namespace zinc::emulated
