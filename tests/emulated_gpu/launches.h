// Runs launches with the maximal overlap that programmatic dependent launch allows. A dependent launch starts as soon
// as every block of the previous one has called launch_dependents() or ended, and its blocks run to their wait before
// the previous one continues: their early reads see the oldest, and their early writes come the soonest, that a GPU
// allows.
#pragma once

#include <span>
#include <vector>

#include "tests/emulated_gpu/cluster.h"

namespace zinc::emulated {

struct Params {
  alignas(16) std::byte bytes[1024];
};
using Kernel = void (*)(Params);  // the ABI passes a large struct in memory, so a kernel reads only its own size

// A kernel in one of the images of its module.
struct KernelImage {
  Kernel kernel;
  std::span<char> shared;
  std::span<char> dynamic_shared;  // part of `shared`: the largest dynamic size
};

struct KernelLaunch {
  LaunchInfo info;
  const std::vector<KernelImage>* images;  // at least one per block of a cluster
  unsigned cluster;                        // blocks along x
  Params params;
};

void run_launches(std::span<const KernelLaunch> launches);

}  // namespace zinc::emulated
