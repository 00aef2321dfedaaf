// Launches in a row, as far ahead of each other as the kernels allow. A launch that may start early is begun as soon as
// every block of the one before has said so or has ended, and its blocks run up to their wait before the one before
// goes on: what they read then is as old as it can be on a GPU, and what they write comes as soon as it can.
#pragma once

#include <span>
#include <vector>

#include "tests/emulated_gpu/cluster.h"

namespace zinc::emulated {

struct Params {
  alignas(16) std::byte bytes[1024];
};
using Kernel = void (*)(Params);  // the ABI hands a large struct over in memory: a kernel reads as much as it has

// A kernel in one of the images of its module.
struct KernelImage {
  Kernel kernel;
  std::span<char> shared;
  std::span<char> asked_for;  // of it, as much as any launch can ask for
};

struct KernelLaunch {
  LaunchFacts facts;
  const std::vector<KernelImage>* images;  // at least as many as a cluster has blocks
  unsigned cluster;                        // blocks along x that run together
  Params params;
};

void run_launches(std::span<const KernelLaunch> launches);

}  // namespace zinc::emulated
