// One GPU: its memory, its stream, its kernels. Everything this backend asks of the driver goes through here. Any
// thread: models that answer or are loaded beside each other share it and its stream.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>

#include "backend/cuda/driver_api.h"
#include "backend/cuda/kernel_store.h"
#include "backend/simt/params.h"

namespace zinc::cuda {

// One kernel launch as data: what a plan is made of.
struct Launch {
  Function function = nullptr;
  std::array<unsigned, 3> grid = {1, 1, 1};
  unsigned shared_bytes = 0;
  unsigned threads = simt::kThreads;  // of a block
  unsigned cluster = 1;               // blocks that run together, along x
  alignas(16) std::array<std::byte, 1024> params{};

  template <class P>
  static Launch of(Function function, const P& p, unsigned x, unsigned y = 1, unsigned z = 1) {
    static_assert(sizeof(P) <= sizeof(params) && std::is_trivially_copyable_v<P>);
    Launch launch;
    launch.function = function;
    launch.grid = {x, y, z};
    std::memcpy(launch.params.data(), &p, sizeof(P));
    return launch;
  }
};

class Device;

// What kernels are compiled for. Hopper's own instructions belong to sm_90a alone; newer parts keep the plain name.
std::string architecture_name(int major, int minor);
// Why GPUs of this compute capability are not used; empty: they are.
std::string too_old(int major, int minor);

// Where machine code comes from: the store, or a test's own. Called from several threads at once.
using KernelSource = std::function<Result<std::vector<char>>(const KernelProgram&)>;

// Memory on the device; freed with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  size_t size() const { return n_bytes_; }
  DevicePointer address() const { return at_; }
  template <class T>
  T* as() const {  // an address of the device, not to be read here
    return reinterpret_cast<T*>(at_);
  }

 private:
  friend class Device;
  const DriverApi* api_ = nullptr;
  Context context_ = nullptr;  // whoever frees it may be a thread that has not taken the GPU
  DevicePointer at_ = 0;
  size_t n_bytes_ = 0;
};

// Host memory the device copies from and to without waiting.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();
  size_t size() const { return n_bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  friend class Device;
  const DriverApi* api_ = nullptr;
  Context context_ = nullptr;  // whoever frees it may be a thread that has not taken the GPU
  void* at_ = nullptr;
  size_t n_bytes_ = 0;
};

class Device {
 public:
  // A GPU by its number, opened once and kept for the process: making a context takes a tenth of a second.
  static Result<Device*> shared(int ordinal = 0);
  // No source: kernels are compiled when first used and kept in the folder for caches.
  static Result<std::unique_ptr<Device>> open(const DriverApi& api, int ordinal, KernelSource source = {});
  ~Device();

  const std::string& name() const { return name_; }
  size_t memory_bytes() const { return memory_bytes_; }
  size_t free_bytes() const;
  bool has_matrix_cores() const { return major_ >= 8; }  // for the instructions gemm.cu uses
  bool has_warpgroups() const { return major_ == 9; }    // for those of gemm_wide.cu
  bool has_bulk_copies() const { return major_ >= 9; }
  bool has_clusters() const { return has_clusters_ != 0; }
  int n_multiprocessors() const { return n_multiprocessors_; }
  int max_shared_bytes() const { return max_shared_bytes_; }
  const DriverApi& api() const { return api_; }
  Stream stream() const { return stream_; }

  // A thread's first call. Weights, caches and plans do it themselves where they are made, copied, started and freed.
  Status make_current() const;
  Result<Buffer> allocate(size_t n_bytes, const char* what) const;  // zeroed
  Result<PinnedBuffer> allocate_pinned(size_t n_bytes) const;
  // Compiles and loads what kernel() is going to be asked for, several programs at a time: one takes seconds.
  Status load_programs(std::span<const KernelProgram> programs);
  Result<Function> kernel(const KernelProgram& program, const char* name);
  Status allow_shared(Function function, size_t n_bytes);  // dynamic shared memory of its launches

  Status run(const Launch& launch) const { return start(launch, stream_, false); }
  Status copy_in(DevicePointer to, const void* from, size_t n_bytes) const;
  Status copy_out(void* to, DevicePointer from, size_t n_bytes) const;
  Status copy_within(DevicePointer to, DevicePointer from, size_t n_bytes) const;
  Status wait() const;  // until all is done
  Status check(Code code, std::string_view what) const;
  // The launches as one graph, each begun while the one before it ends. What others ask of the device meanwhile is no
  // part of it.
  Result<GraphExec> capture(const std::vector<Launch>& launches) const;

 private:
  explicit Device(const DriverApi& api) : api_(api) {}
  Status start(const Launch& launch, Stream stream, bool after_previous) const;
  Result<GraphHandle> capture_on(Stream stream, const std::vector<Launch>& launches) const;
  Status load_missing(std::span<const KernelProgram> programs);  // REQUIRES: mutex_ is held
  const DriverApi& api_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  std::string name_;
  size_t memory_bytes_ = 0;
  int major_ = 0, minor_ = 0, n_multiprocessors_ = 0, max_shared_bytes_ = 0, has_clusters_ = 0;
  KernelSource source_;
  std::mutex mutex_;                           // of what follows; held while kernels are compiled
  std::map<std::string, Module> modules_;      // by the text of their programs
  std::map<std::string, Function> functions_;  // by that and their names
  std::map<Function, size_t> shared_bytes_;    // allowed so far, where more than every kernel has
};

}  // namespace zinc::cuda
