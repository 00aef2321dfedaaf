#include "tests/emulated_vulkan/workgroup.h"

#include <algorithm>

namespace zinc::emulated_vulkan {

void Workgroup::begin(const Program& program, Dim3 id, Dim3 grid, const std::array<uint64_t, 2>& uniforms) {
  memory_.shared.reset(program.shared_bytes);
  memory_.workgroup = memory_.device_writes->add_workgroup();
  subgroups_.resize(program.n_threads / kLanes);
  stops_.assign(subgroups_.size(), Subgroup::Stop::slice);
  for (uint32_t i = 0; i < subgroups_.size(); ++i) subgroups_[i].begin(program, i, memory_, id, grid, uniforms);
}

bool Workgroup::run(int n_instructions) {
  using Stop = Subgroup::Stop;
  for (;;) {
    bool is_slice_over = false;
    for (size_t i = 0; i < subgroups_.size(); ++i) {
      if (stops_[i] != Stop::slice) continue;
      int budget = n_instructions;
      stops_[i] = subgroups_[i].run(budget);
      is_slice_over = is_slice_over || stops_[i] == Stop::slice;
    }
    if (is_slice_over) return true;
    if (std::ranges::count(stops_, Stop::end) == static_cast<int64_t>(stops_.size())) return false;
    if (std::ranges::find(stops_, Stop::end) != stops_.end())
      fault("some subgroups wait at a barrier that others never reach");
    memory_.shared.pass_barrier();
    std::ranges::fill(stops_, Stop::slice);
  }
}

}  // namespace zinc::emulated_vulkan
