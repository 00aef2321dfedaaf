// The CUDA driver API on the host: device memory is host memory, all streams that are not capturing share one queue
// that runs when the host waits, a graph is a list of launches, and a cubin is a shared library built by compiler.cc.
// ZINC_EMULATED_GPU=8.0 emulates that compute capability.
#include "backend/cuda/driver_api.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device.h"
#include "tests/emulated_gpu/device_queue.h"
#include "tests/emulated_gpu/launches.h"

using namespace zinc::cuda;  // the driver's types
using zinc::emulated::Kernel;
using zinc::emulated::KernelImage;
using zinc::emulated::KernelLaunch;
using zinc::emulated::Params;
using zinc::emulated::run_launches;

namespace {

constexpr Code kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500, kNotWhileCapturing = 900;
constexpr int kMultiprocessors = 6, kDriverVersion = 13000, kMaxCluster = 8;
constexpr size_t kMemory = size_t{8} << 30;
constexpr unsigned kPlainShared = 48 << 10;  // more needs an opt-in (cuFuncSetAttribute)

static_assert(sizeof(Params) == sizeof(Launch::params));

// Images of one module: the same code at different addresses, one per block of a cluster.
struct LoadedModule {
  std::vector<void*> images;
};
struct KernelEntry {
  std::string name;
  std::vector<KernelImage> images;
  unsigned max_shared = kPlainShared;
};
using Recording = std::vector<KernelLaunch>;
struct EmulatedStream {
  Recording* recording = nullptr;  // while capturing, when only launches are allowed
};

std::map<std::pair<LoadedModule*, std::string>, std::unique_ptr<KernelEntry>> entries;

int capability() {
  const char* text = std::getenv("ZINC_EMULATED_GPU");
  int major = 9, minor = 0;
  if (text && std::sscanf(text, "%d.%d", &major, &minor) != 2) std::abort();
  return major * 10 + minor;
}

int max_shared() {
  switch (capability()) {
    case 75:
      return 64 << 10;
    case 80:
      return 163 << 10;
    case 90:
      return 227 << 10;
    default:
      return 99 << 10;
  }
}

// Device memory: each allocation ends at a protected guard page, so that a kernel that overruns it crashes; the host's
// copies are checked here.
class Memory {
 public:
  Code allocate(DevicePointer* at, size_t n_bytes) {
    const size_t used = (std::max(n_bytes, size_t{1}) + kAlignment - 1) / kAlignment * kAlignment;
    const size_t mapped = (used + kPage - 1) / kPage * kPage + kPage;
    void* begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return kOutOfMemory;
    char* end = static_cast<char*>(begin) + mapped - kPage;
    mprotect(end, kPage, PROT_NONE);
    std::memset(end - used, 0xFF, used);  // uninitialized: NaN in every format
    *at = reinterpret_cast<DevicePointer>(end - used);
    const std::lock_guard lock(mutex_);
    pieces_[*at] = {begin, mapped, n_bytes};
    n_allocated_ += n_bytes;
    return kSuccess;
  }
  Code free(DevicePointer at) {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(at);
    if (piece == pieces_.end()) return at == 0 ? kSuccess : kInvalidValue;
    munmap(piece->second.begin, piece->second.mapped);
    n_allocated_ -= piece->second.n_bytes;
    pieces_.erase(piece);
    return kSuccess;
  }
  bool has(DevicePointer at, size_t n_bytes) {
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(at);
    if (piece == pieces_.begin()) return false;
    --piece;
    return at + n_bytes <= piece->first + piece->second.n_bytes;
  }

  size_t n_free() {
    const std::lock_guard lock(mutex_);
    return kMemory - n_allocated_;
  }

 private:
  static constexpr size_t kAlignment = 256, kPage = 4096;
  struct Piece {
    void* begin;
    size_t mapped, n_bytes;
  };
  std::mutex mutex_;
  std::map<DevicePointer, Piece> pieces_;
  size_t n_allocated_ = 0;
};
Memory memory;

// Host memory whose copies are asynchronous.
class PinnedMemory {
 public:
  Code allocate(void** at, size_t n_bytes) {
    *at = std::calloc(std::max(n_bytes, size_t{1}), 1);
    if (!*at) return kOutOfMemory;
    const std::lock_guard lock(mutex_);
    ends_[static_cast<const char*>(*at)] = static_cast<const char*>(*at) + n_bytes;
    return kSuccess;
  }
  void free(void* at) {
    const std::lock_guard lock(mutex_);
    ends_.erase(static_cast<const char*>(at));
    std::free(at);
  }
  bool has(const void* at) {
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(static_cast<const char*>(at));
    return next != ends_.begin() && static_cast<const char*>(at) < std::prev(next)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, const char*> ends_;
};
PinnedMemory pinned;
zinc::emulated::DeviceQueue queue;

template <class T>
T handle(void* object) {
  return reinterpret_cast<T>(object);
}

// A thread needs a current context before most calls.
thread_local Context current_context = nullptr;
Code check_context() { return current_context ? kSuccess : kInvalidContext; }
Code check_stream(Stream stream) {
  return handle<EmulatedStream*>(stream)->recording ? kNotWhileCapturing : check_context();
}

// host: the host side of the copy, null: none. A copy of pageable memory is complete when the call returns.
Code copy(void* to, const void* from, size_t n_bytes, const void* host, Stream stream) {
  if (const Code code = check_stream(stream); code != kSuccess) return code;
  queue.add([=] { std::memmove(to, from, n_bytes); });
  if (host && !pinned.has(host)) queue.wait();
  return kSuccess;
}
void* address(DevicePointer at) { return reinterpret_cast<void*>(at); }

// Under a unique name, so that the same bytes can be loaded twice.
void* load_image(const char* bytes, size_t n_bytes) {
  std::string path = (std::filesystem::temp_directory_path() / "emulated_kernel_XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  const bool is_written = write(file, bytes, n_bytes) == static_cast<ssize_t>(n_bytes);
  close(file);
  void* image = is_written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!image) std::fprintf(stderr, "emulated GPU: %s\n", dlerror());
  unlink(path.c_str());
  return image;
}

// With its shared memory, as exported by the image (device/builtins.h).
KernelImage image_of(void* image, void* kernel) {
  const auto address_of = [&](const char* name) { return reinterpret_cast<char* (*)()>(dlsym(image, name))(); };
  return {.kernel = reinterpret_cast<Kernel>(kernel),
          .shared = {address_of("emulated_shared_begin"), address_of("emulated_shared_end")},
          .dynamic_shared = {address_of("emulated_dynamic_shared_begin"), address_of("emulated_dynamic_shared_end")}};
}

unsigned cluster_of(const LaunchConfig& config) {
  for (unsigned i = 0; i < config.n_attributes; ++i) {
    if (config.attributes[i].id == kClusterDimension) return config.attributes[i].value.dimensions[0];
  }
  return 1;
}

bool is_dependent_launch(const LaunchConfig& config) {
  const std::span attributes(config.attributes, config.n_attributes);
  return std::ranges::any_of(attributes, [](const LaunchAttribute& attribute) {
    return attribute.id == kProgrammaticLaunch && attribute.value.number != 0;
  });
}

bool is_valid(const LaunchConfig& config, const KernelEntry& entry, unsigned cluster) {
  return config.grid_x > 0 && config.grid_y > 0 && config.grid_z > 0 && config.grid_x % cluster == 0 &&
         config.grid_y <= 0xFFFF && config.grid_z <= 0xFFFF && cluster <= entry.images.size() &&
         config.block_x % 32 == 0 && config.block_x <= 1024 && config.block_y == 1 && config.block_z == 1 &&
         config.shared_bytes <= entry.max_shared;
}

}  // namespace

#define EMULATED extern "C" __attribute__((visibility("default")))

EMULATED Code cuInit(unsigned) { return kSuccess; }
EMULATED Code cuDriverGetVersion(int* version) { return *version = kDriverVersion, kSuccess; }
EMULATED Code cuGetErrorString(Code, const char** text) { return *text = "refused by the emulated GPU", kSuccess; }

// One, or ZINC_EMULATED_GPUS: they share memory and queue, and differ in their number only.
EMULATED Code cuDeviceGetCount(int* count) {
  const char* const text = std::getenv("ZINC_EMULATED_GPUS");
  return *count = text ? std::atoi(text) : 1, kSuccess;
}
EMULATED Code cuDeviceGet(int* device, int ordinal) { return *device = ordinal, kSuccess; }
EMULATED Code cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "emulated GPU");
  return kSuccess;
}
EMULATED Code cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case kSmCount:
      *value = kMultiprocessors;
      return kSuccess;
    case kMajor:
      *value = capability() / 10;
      return kSuccess;
    case kMinor:
      *value = capability() % 10;
      return kSuccess;
    case kMaxSharedOptIn:
      *value = max_shared();
      return kSuccess;
    case kClusterLaunch:
      *value = capability() >= 90 ? 1 : 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}
EMULATED Code cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = kMemory, kSuccess; }
EMULATED Code cuDevicePrimaryCtxRetain(Context* context, int) { return *context = handle<Context>(&entries), kSuccess; }
EMULATED Code cuCtxSetCurrent(Context context) { return current_context = context, kSuccess; }

EMULATED Code cuMemGetInfo_v2(size_t* free, size_t* total) {
  return *free = memory.n_free(), *total = kMemory, check_context();
}
EMULATED Code cuMemAlloc_v2(DevicePointer* at, size_t bytes) {
  const Code code = check_context();
  return code == kSuccess ? memory.allocate(at, bytes) : code;
}
EMULATED Code cuMemFree_v2(DevicePointer at) {
  const Code code = check_context();
  return code == kSuccess ? (queue.wait(), memory.free(at)) : code;
}
EMULATED Code cuMemAllocHost_v2(void** at, size_t bytes) {
  const Code code = check_context();
  return code == kSuccess ? pinned.allocate(at, bytes) : code;
}
EMULATED Code cuMemFreeHost(void* at) {
  const Code code = check_context();
  return code == kSuccess ? (queue.wait(), pinned.free(at), kSuccess) : code;
}
EMULATED Code cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Stream stream) {
  return memory.has(to, bytes) ? copy(address(to), from, bytes, from, stream) : kInvalidValue;
}
EMULATED Code cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Stream stream) {
  return memory.has(from, bytes) ? copy(to, address(from), bytes, to, stream) : kInvalidValue;
}
EMULATED Code cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, Stream stream) {
  if (!memory.has(to, bytes) || !memory.has(from, bytes)) return kInvalidValue;
  return copy(address(to), address(from), bytes, nullptr, stream);
}
EMULATED Code cuMemsetD8Async(DevicePointer at, unsigned char value, size_t bytes, Stream stream) {
  if (!memory.has(at, bytes)) return kInvalidValue;
  if (const Code code = check_stream(stream); code != kSuccess) return code;
  return queue.add([=] { std::memset(address(at), value, bytes); }), kSuccess;
}

// `image`: the size in bytes, then a shared library.
EMULATED Code cuModuleLoadData(Module* module, const void* image) {
  if (const Code code = check_context(); code != kSuccess) return code;
  size_t n_bytes = 0;
  std::memcpy(&n_bytes, image, sizeof n_bytes);
  auto loaded = std::make_unique<LoadedModule>();
  for (int i = 0; i < kMaxCluster; ++i) {
    void* its_image = load_image(static_cast<const char*>(image) + sizeof n_bytes, n_bytes);
    if (!its_image) return kInvalidValue;
    loaded->images.push_back(its_image);
  }
  *module = handle<Module>(loaded.release());  // never unloaded; the backend does not unload modules
  return kSuccess;
}
EMULATED Code cuModuleGetFunction(Function* function, Module module, const char* name) {
  auto* loaded = handle<LoadedModule*>(module);
  std::unique_ptr<KernelEntry>& entry = entries[{loaded, name}];
  if (!entry) {
    auto found = std::make_unique<KernelEntry>();
    found->name = name;
    for (void* image : loaded->images) {
      void* kernel = dlsym(image, name);
      if (!kernel) return kNotFound;
      found->images.push_back(image_of(image, kernel));
    }
    entry = std::move(found);
  }
  *function = handle<Function>(entry.get());
  return kSuccess;
}
EMULATED Code cuFuncSetAttribute(Function function, int attribute, int value) {
  if (attribute != kMaxDynamicShared) return kSuccess;
  if (value > max_shared()) return kInvalidValue;
  handle<KernelEntry*>(function)->max_shared = static_cast<unsigned>(value);
  return kSuccess;
}

EMULATED Code cuLaunchKernelEx(const LaunchConfig* config, Function function, void** params, void**) {
  if (const Code code = check_context(); code != kSuccess) return code;
  const auto* entry = handle<KernelEntry*>(function);
  KernelLaunch launch{.info = {.kernel = entry->name,
                               .grid = {config->grid_x, config->grid_y, config->grid_z},
                               .n_threads = config->block_x,
                               .shared_bytes = config->shared_bytes,
                               .is_dependent_launch = is_dependent_launch(*config)},
                      .images = &entry->images,
                      .cluster = cluster_of(*config),
                      .params = {}};
  if (!is_valid(*config, *entry, launch.cluster)) return kInvalidValue;
  std::memcpy(launch.params.bytes, params[0], sizeof launch.params.bytes);  // the whole of Launch::params
  if (Recording* recording = handle<EmulatedStream*>(config->stream)->recording) {
    recording->push_back(launch);
  } else {
    queue.add([launch] { run_launches({&launch, 1}); });
  }
  return kSuccess;
}

EMULATED Code cuStreamCreate(Stream* stream, unsigned) {
  return *stream = handle<Stream>(new EmulatedStream), check_context();
}
EMULATED Code cuStreamDestroy_v2(Stream stream) { return delete handle<EmulatedStream*>(stream), kSuccess; }
EMULATED Code cuStreamSynchronize(Stream stream) {
  const Code code = check_stream(stream);
  return code == kSuccess ? (queue.wait(), kSuccess) : code;
}
// An event is the number of operations queued before it.
EMULATED Code cuEventCreate(Event* event, unsigned) { return *event = handle<Event>(new size_t{0}), check_context(); }
EMULATED Code cuEventDestroy_v2(Event event) { return delete handle<size_t*>(event), kSuccess; }
EMULATED Code cuEventRecord(Event event, Stream stream) {
  const Code code = check_stream(stream);
  return code == kSuccess ? (*handle<size_t*>(event) = queue.n_added(), kSuccess) : code;
}
// Times are made up (see cuEventElapsedTime): an event in a graph needs none.
EMULATED Code cuEventRecordWithFlags(Event, Stream, unsigned) { return check_context(); }
EMULATED Code cuEventSynchronize(Event event) {
  const Code code = check_context();
  return code == kSuccess ? (queue.wait_for(*handle<size_t*>(event)), kSuccess) : code;
}
EMULATED Code cuEventElapsedTime(float* ms, Event, Event) { return *ms = 1, kSuccess; }

EMULATED Code cuStreamBeginCapture_v2(Stream stream, unsigned) {
  if (const Code code = check_stream(stream); code != kSuccess) return code;
  return handle<EmulatedStream*>(stream)->recording = new Recording, kSuccess;
}
EMULATED Code cuStreamEndCapture(Stream stream, GraphHandle* graph) {
  *graph = handle<GraphHandle>(std::exchange(handle<EmulatedStream*>(stream)->recording, nullptr));
  return kSuccess;
}
EMULATED Code cuGraphInstantiateWithFlags(GraphExec* exec, GraphHandle graph, unsigned long long) {
  *exec = handle<GraphExec>(new Recording(*handle<Recording*>(graph)));
  return kSuccess;
}
EMULATED Code cuGraphDestroy(GraphHandle graph) { return delete handle<Recording*>(graph), kSuccess; }
EMULATED Code cuGraphExecDestroy(GraphExec exec) { return queue.wait(), delete handle<Recording*>(exec), kSuccess; }
EMULATED Code cuGraphLaunch(GraphExec exec, Stream stream) {
  if (const Code code = check_stream(stream); code != kSuccess) return code;
  return queue.add([recorded = handle<Recording*>(exec)] { run_launches(*recorded); }), kSuccess;
}
