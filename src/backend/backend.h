// One device: it takes weights, keeps caches, and compiles graphs into plans. Called by one thread only.
// A backend is a folder backend/<name>/ whose backend.cc defines k_backend_<name>; the folder listing makes kBackends.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/plan.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

struct DeviceInfo {
  std::string name;
  size_t memory_bytes = 0;      // of the device, or of the machine where it computes in that
  size_t free_bytes = 0;        // of it, now; 0: not known
  bool has_own_memory = false;  // what a model takes is taken from the device, not from the machine
  std::string driver = {};      // name and version
  std::string features = {};    // what its kernels depend on, for people
  std::string why_not = {};     // empty: it can be used
};

// What the device does at most, measured just now. 0: not known.
struct DevicePeaks {
  double read_bytes_per_s = 0;          // from memory, no cache
  double flops_per_s = 0;               // of the arithmetic its matrix products use; a product counts two
  std::string_view arithmetic = "f32";  // which that is: "f32", "int8"
};

// The weights of one or more graphs on the device, found by tensor name.
class DeviceWeights {
 public:
  virtual ~DeviceWeights() = default;
  virtual size_t device_bytes() const = 0;  // memory taken beyond the mapped file
};

using DoneWith = std::function<void(std::span<const std::byte>)>;

struct CacheSizes {
  std::vector<int> n_pages;           // per page group
  int max_length = 0;                 // positions of one sequence; 0: as many as there are pages for
  int n_slots = 1;                    // recurrent states and last sampled tokens
  const Format* kv_format = nullptr;  // how keys and values are kept
};

// Memory of the caches of one model: KV pages per group, recurrent states per slot. A snapshot of a state is a copy
// into another slot; a page shared by two sequences is copied before it is written. What leaves the device is opaque
// bytes that only the same backend, model and format can take back.
class CacheMemory {
 public:
  virtual ~CacheMemory() = default;
  // A copy that fails is told by the steps behind it.
  virtual void copy_page(int group, PageId from, PageId to) = 0;
  virtual void copy_state(int from_slot, int to_slot) = 0;
  // Pages that nobody has written and somebody will soon: what the first use of their memory costs is paid here, not by
  // the step that writes them.
  virtual void make_ready([[maybe_unused]] int group, [[maybe_unused]] PageId first, [[maybe_unused]] int n_pages) {}
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
  virtual DevicePeaks measure_peaks() = 0;  // a fraction of a second, all threads
  // Repacks the graphs' weights once, or uses them in place. The mapped file must outlive the result. `done_with` is
  // called, on this thread, for the bytes of each weight that is not read in place, as soon as they have been read; and
  // by steps, now and then, for a table of which they read a few rows in place.
  virtual Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                        const DoneWith& done_with) = 0;
  virtual Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                              const CacheSizes& sizes) = 0;
  // An op or format the backend cannot run is an `unsupported` error here, at load, that names both.
  // Weights, cache and graph must outlive the plan.
  virtual Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                                const Bucket& bucket) = 0;
};

struct BackendInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view default_kv_format;  // how it keeps keys and values unless asked
  int product_bits;  // of the activations in products with block-quantized weights: 32, or 8 where it rounds them
  int attention_bits = 32;    // of queries and of weights over 16-bit or 8-bit caches: 32, or 16 where it rounds them
  bool keeps_fp8 = false;     // keys and values may be fp8, besides f32, f16 and q8_0
  int step_tokens = 512;      // prompt tokens of a step: more are not faster
  int state_chunk = 1;        // positions a recurrent layer takes together; other cuts of a prompt change last bits
  bool draws_tokens = false;  // takes StepInputs::draws
  int rank;                   // the default backend is the highest that is usable
  bool (*usable)();           // on this machine; asked often, so it opens nothing
  Result<std::unique_ptr<Backend>> (*open)(int n_threads);  // 0: one per core
  // Whether it has kernels of its own for matrices of this format, rather than decoding them row by row.
  bool (*is_fast_format)(const Format& format) = nullptr;  // nullptr: it has for all it takes
  int decoded_bits = 0;  // of each number of other formats' matrices in its memory; 0: they stay as in the file
  // Every device it sees, usable or not. nullptr: the one it opens.
  std::vector<DeviceInfo> (*devices)() = nullptr;
  // A device of several, by its number or part of its name. nullptr: the backend has one device.
  Result<std::unique_ptr<Backend>> (*open_named)(std::string_view device, int n_threads) = nullptr;
};

// Bytes that a model on this device may take in all: what is free on the device, or on the machine, whichever counts.
size_t available_bytes(const DeviceInfo& device);

extern const BackendInfo* const kBackends[];  // every backend built in, ended by nullptr
// The fastest backend that works here: what runs where none is asked for.
const BackendInfo& default_backend();
std::string backend_names();  // "reference, cpu"
// The backend of that name, which may say a device as well ("vulkan:llvmpipe"); the error lists those there are.
Result<const BackendInfo*> find_backend(std::string_view name);
// Opens it, with the device its name says.
Result<std::unique_ptr<Backend>> open_backend(std::string_view name, int n_threads);

}  // namespace zinc
