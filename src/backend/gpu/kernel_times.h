// Names and times of the kernels of a step on a GPU, for Plan::kernel_times().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/fusion.h"

namespace zinc::gpu {

struct KernelName {
  std::string name;
  std::vector<int32_t> nodes;  // that it computes
};

// A kernel by the device's clock: nanoseconds since the step's first kernel started.
struct DeviceTime {
  const KernelName* kernel;
  double begin_ns, end_ns;
};

// The nodes computed by the kernels that are lowered at `node`: itself, or the matmuls of its group. -1: none.
std::vector<int32_t> nodes_lowered_at(const Fusion& fusion, int node, bool is_decode);

}  // namespace zinc::gpu
