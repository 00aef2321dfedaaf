// A backend drives one device: it uploads weights, allocates caches and compiles graphs into plans. One thread only.
// A backend is a folder backend/<name>/ whose backend.cc defines k_backend_<name>; CMake builds kBackends from the
// folders.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/plan.h"
#include "backend/step_kernels.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

struct DeviceInfo {
  std::string name;
  size_t memory_bytes = 0;              // of the device, or of the host if the device uses host memory
  size_t free_bytes = 0;                // currently free; 0: unknown
  bool has_dedicated_memory = false;    // a discrete GPU: models use device memory, not host memory
  std::string driver = {};              // name and version
  std::string features = {};            // features that the kernels depend on, human-readable
  std::string unavailable_reason = {};  // empty: the device is available
};

// Measured peak rates of the device. 0: unknown.
struct DevicePeaks {
  double read_bytes_per_s = 0;          // from memory, not from cache
  double flops_per_s = 0;               // of the arithmetic its matmuls use; a multiply-add counts as two
  std::string_view arithmetic = "f32";  // "f32", "int8"
};

// The weights of one or more graphs on the device, looked up by tensor name.
class DeviceWeights {
 public:
  virtual ~DeviceWeights() = default;
  // As they are stored on the device, and what steps read in place from the mapped file.
  virtual size_t device_bytes() const = 0;
  virtual size_t upload_bytes() const { return 0; }  // in addition, while they are uploaded
  // The part of one device of a backend that has several (Backend::devices).
  virtual size_t device_bytes_on(size_t) const { return device_bytes(); }
  virtual size_t upload_bytes_on(size_t) const { return upload_bytes(); }
  // Of weights that Backend::stream() made: queues the copy of a graph's weights to the device, behind the steps that
  // were started before and ahead of those that are started later.
  virtual Status load(const Graph&) { return ok_status(); }
  virtual Result<double> measure_load_seconds(const Graph&) { return 0.0; }
  // More than 1: a prompt's whole chunks of so many tokens, counted from its start, are computed on another device than
  // other tokens are, with other last bits. Steps must not divide them.
  virtual int prompt_chunk_tokens() const { return 1; }
};

// Called with a range of the mapped file that is no longer needed in memory.
using ReleaseFilePages = std::function<void(std::span<const std::byte>)>;

struct CacheSizes {
  std::vector<int> n_pages;           // per page group
  int max_length = 0;                 // positions per sequence; 0: limited only by n_pages
  int n_slots = 1;                    // each holds one recurrent state and one last sampled token
  const Format* kv_format = nullptr;  // format of the KV cache
};

// Cache memory of one model: KV pages per page group, recurrent states per slot. A state is snapshotted by copying it
// to another slot. A page shared by two sequences is copied before it is written. read_page and read_state return
// opaque bytes that can only be restored on the same backend, model and KV format.
class CacheMemory {
 public:
  virtual ~CacheMemory() = default;
  virtual size_t device_bytes() const = 0;
  virtual size_t device_bytes_on(size_t) const { return device_bytes(); }
  // Copies are asynchronous: a failure is reported by a later step.
  virtual void copy_page(int group, PageId from, PageId to) = 0;
  virtual void copy_state(int from_slot, int to_slot) = 0;
  // Touches pages that will soon be written for the first time: the page faults happen here, not in the step.
  virtual void prefault_pages([[maybe_unused]] int group, [[maybe_unused]] PageId first, [[maybe_unused]] int n_pages) {
  }
  virtual size_t page_bytes(int group) const = 0;
  virtual size_t state_bytes() const = 0;
  virtual Status read_page(int group, PageId page, std::span<std::byte> out) = 0;
  virtual Status write_page(int group, PageId page, std::span<const std::byte> in) = 0;
  virtual Status read_state(int slot, std::span<std::byte> out) = 0;
  virtual Status write_state(int slot, std::span<const std::byte> in) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceInfo info() const = 0;
  // Its devices: several if it splits a model over them (backend/split).
  virtual std::vector<DeviceInfo> devices() const { return {info()}; }
  virtual DevicePeaks measure_peaks() = 0;  // takes a fraction of a second, uses all threads
  virtual double clock_mhz() { return 0; }  // of the device's compute units, now; 0: unknown
  // Repacks the graphs' weights once, or uses them in place. The mapped file must outlive the result.
  // `release_file_pages` is called on this thread, for each weight that is not used in place as soon as it has been
  // read, and occasionally by steps for an embedding table from which they read only a few rows.
  virtual Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                        const ReleaseFilePages& release_file_pages) = 0;
  virtual Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                              const CacheSizes& sizes) = 0;
  // Weights that stay in the host's memory: DeviceWeights::load() copies those of one graph at a time into device
  // memory that the graphs share. nullptr: the backend computes in the host's memory. The mapped file must outlive the
  // result.
  virtual Result<std::unique_ptr<DeviceWeights>> stream(std::span<const Graph* const>) {
    return std::unique_ptr<DeviceWeights>();
  }
  // If the backend does not support an op or a format, fails with `unsupported` (at load) and names both.
  // Weights, cache and graph must outlive the plan.
  virtual Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                                const Bucket& bucket) = 0;
  // The same device, but memory is only counted: device_bytes() of what it uploads, allocates and compiles is what this
  // backend would take, because the same code lays it out. Its caches and plans cannot be used. Must not outlive this
  // backend.
  virtual std::unique_ptr<Backend> without_memory() = 0;
};

struct BackendInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view default_kv_format;            // KV cache format unless the user sets one
  std::span<const std::string_view> kv_formats;  // KV cache formats that its kernels have
  int matmul_activation_bits;                    // in matmuls with block-quantized weights: 32, or 8 if quantized to q8
  int attention_activation_bits = 32;            // queries and softmax weights with 16-bit or 8-bit KV: 32 or 16
  int step_tokens = 512;                         // prefill tokens per step; more are not faster
  int scan_chunk_tokens = 1;          // chunk of the recurrent scan; other prompt splits change the last bits
  bool can_sample_on_device = false;  // supports StepInputs::sampling
  int priority;                       // the available backend with the highest priority is the default
  bool (*is_available)();             // on this machine; called often, so it does not open a device
  Result<std::unique_ptr<Backend>> (*open)(int n_threads);  // n_threads 0: one per core
  // Whether matmuls have a kernel for this format; otherwise weights are dequantized row by row.
  bool (*has_packed_kernel)(const Format& format) = nullptr;  // nullptr: all supported formats do
  int dequantized_bits = 0;  // bits per weight in memory for formats without a kernel; 0: stored as in the file
  // All devices it detects, available or not. nullptr: only the one it opens.
  std::vector<DeviceInfo> (*devices)() = nullptr;
  // The kernels of a step on a GPU that need not be present; the error of an unknown name lists those that are known.
  // nullptr: the backend is not for GPUs.
  Result<StepKernels> (*step_kernels)(std::string_view gpu, const Graph& graph, const BatchShape& step) = nullptr;
  // Opens a device by number or by part of its name. nullptr: the backend has one device.
  Result<std::unique_ptr<Backend>> (*open_device)(std::string_view device, int n_threads) = nullptr;
};

// Bytes available to a model on this device: free device memory, or free host memory if the device uses that.
size_t available_bytes(const DeviceInfo& device);

extern const BackendInfo* const kBackends[];  // all compiled-in backends, terminated by nullptr
// The fastest available backend, used if the user does not choose one.
const BackendInfo& default_backend();
std::string backend_names();  // "reference, cpu"
bool has_kv_format(const BackendInfo& backend, std::string_view format);
std::string kv_format_names(const BackendInfo& backend);  // "f32, f16 or q8_0"
std::vector<std::string_view> all_kv_formats();           // that any of the backends has
// Finds a backend by name, which may include a device ("vulkan:llvmpipe"); the error lists all backends.
Result<const BackendInfo*> find_backend(std::string_view name);
// Opens the backend, on the device in its name if there is one.
Result<std::unique_ptr<Backend>> open_backend(std::string_view name, int n_threads);

}  // namespace zinc
