// The kernels of one step on a GPU that is known by name and need not be present: for `zinc graph --kernels`.
#pragma once

#include <string>
#include <vector>

#include "graph/cost.h"

namespace zinc {

struct KernelLaunch {
  std::string kernel, grid;
};

// Nodes that run as one kernel, or as a few that belong together. A norm in the prologue of several matmuls is listed
// with each of them.
struct KernelGroup {
  std::vector<const Node*> nodes;  // empty: prepares the step or the next kernel's input
  std::vector<KernelLaunch> launches;
  Cost cost;  // activations that stay inside the kernels are not counted
};

struct StepKernels {
  std::string device;
  RooflinePeaks peaks;  // of the data sheet
  std::vector<KernelGroup> groups;
};

}  // namespace zinc
