// The kernels of a step as plain data, made without a GPU: what a graph is lowered to.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "backend/gpu/fused_call.h"
#include "backend/simt/host/kernel_program.h"
#include "backend/simt/params.h"

namespace zinc::simt::host {

// One kernel launch as data; a plan is a list of them.
struct Launch {
  std::array<unsigned, 3> grid = {1, 1, 1};
  unsigned shared_bytes = 0;
  unsigned threads = simt::kThreads;  // per block
  unsigned cluster = 1;               // blocks per cluster, along x
  alignas(16) std::array<std::byte, 1024> params{};

  template <class P>
  static Launch of(const P& p, unsigned n_blocks = 1) {
    static_assert(sizeof(P) <= sizeof(params) && std::is_trivially_copyable_v<P>);
    Launch launch;
    launch.grid = {n_blocks, 1, 1};
    std::memcpy(launch.params.data(), &p, sizeof(P));
    return launch;
  }
};

// A kernel of a step before it is compiled: what a graph is lowered to. Plain data, made without a GPU.
struct KernelCall {
  KernelProgram program;
  std::string kernel;  // an entry point of the program
  Launch launch;
  const gpu::FusedCall* call = nullptr;  // of the step; nullptr: prepares it
  std::string name() const { return program.format.empty() ? kernel : kernel + " " + program.format; }
};

// What the lowering needs to know of a GPU.
struct DeviceLimits {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int n_sms = 0, max_shared_bytes = 0;
  bool has_clusters = false;

  bool has_tensor_cores() const { return major >= 8; }  // for gemm.cu's mma instructions
  bool has_wgmma() const { return major == 9; }
  bool has_bulk_copies() const { return major >= 9; }
  bool has_dependent_launch() const { return major >= 9; }
};
// Shared memory of a decode launch's block, at most, so that blocks of two launches share an SM; all that a block may
// have on a GPU without dependent launch.
inline int decode_block_bytes(const DeviceLimits& device) {
  constexpr int kReservedPerBlock = 1 << 10, kMaxBytes = 112 << 10;
  const int half = (device.max_shared_bytes + kReservedPerBlock) / 2 - 2 * kReservedPerBlock;
  return std::min(kMaxBytes, device.has_dependent_launch() ? half : device.max_shared_bytes);
}

}  // namespace zinc::simt::host
