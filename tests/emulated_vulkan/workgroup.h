// A workgroup of a dispatch: its subgroups and shared memory. One host thread interleaves several workgroups.
#pragma once

#include "tests/emulated_vulkan/subgroup.h"

namespace zinc::emulated_vulkan {

class Workgroup {
 public:
  explicit Workgroup(DeviceWrites& writes) { memory_.device_writes = &writes; }
  void begin(const Program& program, Dim3 id, Dim3 grid, const std::array<uint64_t, 2>& uniforms);
  bool run(int n_instructions);  // false: finished

 private:
  WorkgroupMemory memory_;
  std::vector<Subgroup> subgroups_;
  std::vector<Subgroup::Stop> stops_;
};

}  // namespace zinc::emulated_vulkan
