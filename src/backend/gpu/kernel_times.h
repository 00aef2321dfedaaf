// Names and times of the kernels of a step on a GPU, for Plan::kernel_times().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/gpu/fused_call.h"

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

// Of the nodes that a call computes; none for nullptr.
std::vector<int32_t> node_indices(const Graph& graph, const FusedCall* call);

}  // namespace zinc::gpu
