// One GPU: its memory, stream and kernels. All driver calls of this backend go through here. Thread-safe: models that
// run or load at the same time share the device and its stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/gpu/device.h"
#include "backend/simt/host/kernel_call.h"

namespace zinc::cuda {

using gpu::Buffer;
using gpu::Memory;

using simt::host::DeviceLimits;
using simt::host::KernelCall;
using simt::host::Launch;

struct PreparedLaunch {
  Function function = nullptr;
  Launch launch;
};

// The compile target. Hopper-specific instructions (wgmma) need sm_90a; other GPUs use the plain name.
std::string architecture_name(int major, int minor);
// Why this compute capability is not supported; empty: it is supported.
std::string unsupported_reason(int major, int minor);

// Returns the cubin of a program: from the kernel cache, or from a test. Called from several threads at once.
using CubinProvider = std::function<Result<std::vector<char>>(const KernelProgram&)>;

DeviceLimits query_limits(const DriverApi& api, int id);

// A GPU by number, as in nvidia-smi, used like a GPU of this compute capability; major 0: its own. Features that GPUs
// of the capability do not have are then not used: the kernels of other GPUs run, and can be measured, on this one.
struct DeviceChoice {
  int ordinal = 0;
  int major = 0, minor = 0;
  auto operator<=>(const DeviceChoice&) const = default;
};
// "1", or "0@8.9": GPU 0 with the features of compute capability 8.9.
Result<DeviceChoice> parse_device(std::string_view text);
// The limits of a GPU with only the features and the shared memory of this compute capability.
DeviceLimits limits_of_capability(DeviceLimits limits, int major, int minor);

class Device final : public gpu::Device {
 public:
  // A GPU by number, opened once per process: creating a context takes a tenth of a second.
  static Result<Device*> shared(const DeviceChoice& choice = {});
  // Without a cubin provider, kernels are compiled on first use and cached on disk (KernelCache).
  static Result<std::unique_ptr<Device>> open(const DriverApi& api, const DeviceChoice& choice,
                                              CubinProvider cubin_provider = {});
  ~Device() override;

  const DeviceLimits& limits() const { return limits_; }
  size_t memory_bytes() const { return memory_bytes_; }
  size_t free_bytes() const;
  const DriverApi& api() const { return api_; }
  Stream stream() const { return stream_; }

  // Makes the context current on this thread. The functions that override gpu::Device's do this; before all others it
  // is the caller's task.
  Status make_current() const;
  using gpu::Device::allocate;
  // Memory of the host is page-locked, for asynchronous copies.
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) override;
  Status write(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status read(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  Status copy(std::span<const gpu::BufferCopy> copies) override;
  Status wait_all() override;
  // Compiles and loads programs in parallel before kernel() needs them: one takes seconds.
  Status load_programs(std::span<const KernelProgram> programs);
  Result<Function> kernel(const KernelProgram& program, const char* name);
  Result<std::vector<PreparedLaunch>> prepare(std::span<const KernelCall> calls);

  Status run(const PreparedLaunch& launch) const { return start(launch, stream_, false); }
  Status copy_h2d(DevicePointer to, const void* from, size_t n_bytes) const;
  Status copy_d2h(void* to, DevicePointer from, size_t n_bytes) const;
  Status wait() const;  // until the stream is idle
  Status check(Code code, std::string_view what) const;
  // Captures the launches as one CUDA graph with programmatic dependent launch between them. Work that other threads
  // queue meanwhile does not become part of it.
  // With n + 1 `events`, they are recorded before the first and after each launch, and launches do not overlap.
  Result<GraphExec> capture(const std::vector<PreparedLaunch>& launches, std::span<const Event> events = {}) const;

 private:
  explicit Device(const DriverApi& api) : api_(api) {}
  Status start(const PreparedLaunch& launch, Stream stream, bool is_programmatic) const;
  Result<GraphHandle> capture_on(Stream stream, const std::vector<PreparedLaunch>& launches,
                                 std::span<const Event> events) const;
  Status load_missing(std::span<const KernelProgram> programs);    // REQUIRES: mutex_ is held
  Status set_max_dynamic_smem(Function function, size_t n_bytes);  // never lowers it
  const DriverApi& api_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  DeviceLimits limits_;
  size_t memory_bytes_ = 0;
  CubinProvider cubin_provider_;
  std::mutex mutex_;                           // guards the maps below; held while kernels are compiled
  std::map<std::string, Module> modules_;      // by program source
  std::map<std::string, Function> functions_;  // by program source and kernel name
  std::map<Function, size_t> shared_bytes_;    // raised limits, if above the default
};

}  // namespace zinc::cuda
