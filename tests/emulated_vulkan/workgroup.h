// A workgroup of a dispatch: its subgroups and their memory. Several run at once on one thread of the host, each for a
// while.
#pragma once

#include "tests/emulated_vulkan/subgroup.h"

namespace zinc::emulated_vulkan {

class Workgroup {
 public:
  void begin(const Program& program, Position at, Position grid, const std::array<uint64_t, 2>& blocks);
  bool run(int n_instructions);  // false: it is over

 private:
  SharedMemory shared_;
  std::vector<Subgroup> subgroups_;
  std::vector<Subgroup::Stop> stops_;
};

}  // namespace zinc::emulated_vulkan
