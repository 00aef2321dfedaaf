// The blocks of a cluster on the host: each thread is a fiber on the caller's thread. Threads yield only at CUDA's
// barriers and waits, so runs are deterministic; a deadlock is an error that names the kernel. A cluster can be
// suspended in wait_dependency() or launch_dependents(): other clusters then run in the same shared memory, so its
// contents are saved and restored.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/emulated_gpu/device/runtime.h"

namespace zinc::emulated {

// One block: its threads' function, and its shared memory, which lies in an image of the kernel. Images of a kernel
// differ only in their address, so a block finds another's shared memory by the same offset.
struct Block {
  std::function<void()> body;
  std::span<char> shared;
  std::span<const char> guard;  // follows the dynamic shared memory of the launch; must not be written
  EmulatedIndex index;
};

// Common to all blocks of a launch.
struct LaunchInfo {
  std::string kernel;  // its name, for messages
  EmulatedIndex grid;
  unsigned n_threads;                // per block
  unsigned shared_bytes;             // dynamic, in addition to the kernel's static shared memory
  bool is_dependent_launch = false;  // programmatic dependent launch: may start before earlier launches complete
};

class Cluster {
 public:
  Cluster(const LaunchInfo& launch, std::vector<Block> blocks);
  ~Cluster();
  Cluster(Cluster&&) = delete;

  enum class Goal { dependents_launched, end };
  // Runs until the goal is reached or, while earlier launches are incomplete, until all remaining threads wait for
  // them.
  void run(Goal goal, bool is_previous_complete);
  bool has_ended() const;
  bool has_launched_dependents() const;  // or has ended
  bool has_waited() const;               // called wait_dependency()

  class Execution;

 private:
  std::unique_ptr<Execution> execution_;
};

}  // namespace zinc::emulated
