#include "backend/cuda/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/cache_folder.h"
#include "base/thread_pool.h"

namespace zinc::cuda {
namespace {

constexpr int kMinMajor = 7, kMinMinor = 5;       // Turing: dp4a, mma
constexpr size_t kDefaultDynamicSmem = 40 << 10;  // default limit of dynamic shared memory

// Frees memory of the device or of the host, on any thread.
class DriverAllocation final : public gpu::Allocation {
 public:
  DriverAllocation(const DriverApi& api, Context context, DevicePointer on_device, void* on_host)
      : api_(api), context_(context), on_device_(on_device), on_host_(on_host) {}
  ~DriverAllocation() override {
    api_.set_context(context_);  // of a thread where it may not be current
    if (on_device_) api_.free(on_device_);
    if (on_host_) api_.free_host(on_host_);
  }

 private:
  const DriverApi& api_;
  Context context_;
  DevicePointer on_device_;
  void* on_host_;
};

// Whether `device` has all instructions that `other` has: those of GeForce Blackwell are a part of Hopper's.
bool has_features_of(const DeviceLimits& device, const DeviceLimits& other) {
  return (device.has_tensor_cores() || !other.has_tensor_cores()) &&
         (device.has_bulk_copies() || !other.has_bulk_copies()) && (device.has_wgmma() || !other.has_wgmma());
}

}  // namespace

std::string architecture_name(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major == 9 ? "a" : "");
}

std::string unsupported_reason(int major, int minor) {
  if (std::pair(major, minor) >= std::pair(kMinMajor, kMinMinor)) return "";
  return fmt::format("compute capability {}.{}; {}.{} (Turing, 2018) or newer is needed", major, minor, kMinMajor,
                     kMinMinor);
}

DeviceLimits query_limits(const DriverApi& api, int id) {
  DeviceLimits limits;
  char name[128] = "NVIDIA GPU";
  api.device_name(name, sizeof(name), id);
  limits.name = name;
  int has_clusters = 0;
  api.device_attribute(&limits.major, kMajor, id);
  api.device_attribute(&limits.minor, kMinor, id);
  api.device_attribute(&limits.n_sms, kSmCount, id);
  api.device_attribute(&limits.max_shared_bytes, kMaxSharedOptIn, id);
  api.device_attribute(&has_clusters, kClusterLaunch, id);
  limits.has_clusters = has_clusters != 0;
  return limits;
}

Result<DeviceChoice> parse_device(std::string_view text) {
  DeviceChoice choice;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  const auto read = [&](int& to) {
    const auto [next, error] = std::from_chars(at, end, to);
    at = next;
    return error == std::errc();
  };
  const auto skip = [&](char c) { return at != end && *at++ == c; };
  bool is_valid = read(choice.ordinal);
  if (is_valid && at != end) {
    is_valid = skip('@') && read(choice.major) && skip('.') && read(choice.minor) && at == end && choice.major > 0;
  }
  if (is_valid && choice.ordinal >= 0 && choice.minor >= 0) return choice;
  return fail(ErrorCode::invalid_input,
              "invalid device 'cuda:{}'; expected a GPU number as in nvidia-smi, for example cuda:0, or with a compute "
              "capability whose features are used, for example cuda:0@8.9",
              text);
}

DeviceLimits limits_of_capability(DeviceLimits limits, int major, int minor) {
  constexpr int kTuringBytes = 64 << 10, kGeForceBytes = 99 << 10, kA100Bytes = 163 << 10;
  const bool is_data_center = major == 9 || major == 10 || (major == 8 && (minor == 0 || minor == 7));
  const int shared_bytes = major < 8         ? kTuringBytes
                           : !is_data_center ? kGeForceBytes
                           : major == 8      ? kA100Bytes
                                             : limits.max_shared_bytes;
  limits.major = major;
  limits.minor = minor;
  limits.max_shared_bytes = std::min(limits.max_shared_bytes, shared_bytes);
  limits.has_clusters = limits.has_clusters && major >= 9;
  return limits;
}

Result<Device*> Device::shared(const DeviceChoice& choice) {
  static std::map<DeviceChoice, std::unique_ptr<Device>> devices;
  static std::mutex mutex;
  ZINC_TRY(api, load_driver());
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = devices[choice];
  if (!device) {
    ZINC_TRY(opened, open(*api, choice));
    device = std::move(opened);
  }
  if (Status current = device->make_current(); !current.ok()) return current.error();
  return device.get();
}

Result<std::unique_ptr<Device>> Device::open(const DriverApi& api, const DeviceChoice& choice,
                                             CubinProvider cubin_provider) {
  std::unique_ptr<Device> device(new Device(api));
  const int ordinal = choice.ordinal;
  int n_devices = 0, id = 0;
  if (Status s = device->check(api.device_count(&n_devices), "counting GPUs"); !s.ok()) return s.error();
  if (ordinal < 0 || ordinal >= n_devices) {
    return fail(ErrorCode::not_found, "GPU {} does not exist: {} found, numbered from 0; see nvidia-smi", ordinal,
                n_devices);
  }
  if (Status s = device->check(api.device_get(&id, ordinal), "opening the GPU"); !s.ok()) return s.error();
  const DeviceLimits& limits = device->limits_;
  device->limits_ = query_limits(api, id);
  api.device_memory(&device->memory_bytes_, id);
  if (const std::string why = unsupported_reason(limits.major, limits.minor); !why.empty()) {
    return fail(ErrorCode::unsupported, "{} has {}", limits.name, why);
  }
  const std::string architecture = architecture_name(limits.major, limits.minor);
  if (choice.major > 0) {
    const DeviceLimits chosen = limits_of_capability(limits, choice.major, choice.minor);
    if (!unsupported_reason(choice.major, choice.minor).empty() || !has_features_of(limits, chosen)) {
      return fail(ErrorCode::invalid_input,
                  "{} (compute capability {}.{}) cannot be used as a GPU of compute capability {}.{}; choose an older "
                  "one, from {}.{} on",
                  limits.name, limits.major, limits.minor, choice.major, choice.minor, kMinMajor, kMinMinor);
    }
    device->limits_ = chosen;
  }
  if (Status s = device->check(api.retain_context(&device->context_, id), "opening the GPU"); !s.ok()) return s.error();
  if (Status s = device->make_current(); !s.ok()) return s.error();
  if (Status s = device->check(api.create_stream(&device->stream_, kNonBlocking), "creating a stream"); !s.ok()) {
    return s.error();
  }
  if (!cubin_provider) {
    const auto cache = std::make_shared<KernelCache>(architecture, get_cache_folder());
    cubin_provider = [cache](const KernelProgram& program) { return cache->get_or_compile(program); };
  }
  device->cubin_provider_ = std::move(cubin_provider);
  return device;
}

Device::~Device() {
  if (stream_) api_.destroy_stream(stream_);
}

Status Device::check(Code code, std::string_view what) const {
  if (code == kSuccess) return ok_status();
  const char* text = nullptr;
  api_.error_string(code, &text);
  const ErrorCode kind = code == kOutOfMemory ? ErrorCode::out_of_memory : ErrorCode::device_lost;
  return fail(kind, "{}: {} failed: {} (CUDA error {})", limits_.name.empty() ? "CUDA" : limits_.name, what,
              text ? text : "unknown error", code);
}

size_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  return make_current().ok() && api_.memory_info(&free, &total) == kSuccess ? free : 0;
}

Status Device::make_current() const { return check(api_.set_context(context_), "setting the CUDA context"); }

Result<Buffer> Device::allocate(size_t n_bytes, std::string_view what, Memory kind) {
  if (n_bytes == 0) return Buffer();
  if (Status s = make_current(); !s.ok()) return s.error();
  if (kind != Memory::device) {
    void* on_host = nullptr;
    if (Status s = check(api_.allocate_host(&on_host, n_bytes), "allocating pinned host memory"); !s.ok()) {
      return s.error();
    }
    return Buffer(std::make_unique<DriverAllocation>(api_, context_, 0, on_host), reinterpret_cast<uint64_t>(on_host),
                  on_host, n_bytes);
  }
  DevicePointer on_device = 0;
  if (const Code code = api_.allocate(&on_device, n_bytes); code != kSuccess) {
    if (code != kOutOfMemory) return check(code, what).error();
    size_t free = 0, total = 0;
    api_.memory_info(&free, &total);
    return fail(ErrorCode::out_of_memory,
                "{}: out of memory: {} bytes for {}, but {} of {} bytes are free; use a smaller model, a smaller "
                "quantization or a shorter context",
                limits_.name, n_bytes, what, free, total);
  }
  Buffer buffer(std::make_unique<DriverAllocation>(api_, context_, on_device, nullptr), on_device, nullptr, n_bytes);
  if (Status s = check(api_.fill(on_device, 0, n_bytes, stream_), "clearing memory"); !s.ok()) return s.error();
  return buffer;
}

Status Device::write(const Buffer& to, size_t offset, std::span<const std::byte> from) {
  if (Status s = make_current(); !s.ok()) return s;
  if (Status s = copy_h2d(to.address() + offset, from.data(), from.size()); !s.ok()) return s;
  return wait();
}

Status Device::read(const Buffer& from, size_t offset, std::span<std::byte> to) {
  if (Status s = make_current(); !s.ok()) return s;
  if (Status s = copy_d2h(to.data(), from.address() + offset, to.size()); !s.ok()) return s;
  return wait();
}

Status Device::copy(std::span<const gpu::BufferCopy> copies) {
  if (Status s = make_current(); !s.ok()) return s;
  for (const gpu::BufferCopy& c : copies) {
    const Code code = api_.copy_d2d(c.to.address() + c.to_offset, c.from.address() + c.from_offset, c.n_bytes, stream_);
    if (Status s = check(code, "copying on the GPU"); !s.ok()) return s;
  }
  return ok_status();
}

Status Device::wait_all() {
  if (Status s = make_current(); !s.ok()) return s;
  return wait();
}

Status Device::load_programs(std::span<const KernelProgram> programs) {
  const std::lock_guard lock(mutex_);
  return load_missing(programs);
}

Status Device::load_missing(std::span<const KernelProgram> programs) {
  std::map<std::string, const KernelProgram*> missing;  // by program source
  for (const KernelProgram& program : programs) {
    if (std::string source = program.source(); !modules_.contains(source)) {
      missing.emplace(std::move(source), &program);
    }
  }
  const std::vector<std::pair<std::string, const KernelProgram*>> list(missing.begin(), missing.end());
  std::vector<std::optional<Result<std::vector<char>>>> compiled(list.size());
  ThreadPool threads(std::min(default_thread_count(), std::max(1, static_cast<int>(list.size()))));
  threads.parallel_for(list.size(), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) compiled[i] = cubin_provider_(*list[i].second);
  });
  for (size_t i = 0; i < list.size(); ++i) {
    if (!compiled[i]->ok()) return compiled[i]->error();
    Module loaded = nullptr;
    const Code code = api_.load_module(&loaded, compiled[i]->value().data());
    if (Status s = check(code, "loading the kernels of " + list[i].second->file); !s.ok()) return s;
    modules_.emplace(list[i].first, loaded);
  }
  return ok_status();
}

Result<Function> Device::kernel(const KernelProgram& program, const char* name) {
  const std::string source = program.source(), key = source + name;
  const std::lock_guard lock(mutex_);
  if (const auto found = functions_.find(key); found != functions_.end()) return found->second;
  if (Status s = load_missing({&program, 1}); !s.ok()) return s.error();
  Function function = nullptr;
  const Code code = api_.find_function(&function, modules_.at(source), name);
  if (Status s = check(code, fmt::format("finding kernel {}", name)); !s.ok()) return s.error();
  // The same shared memory carveout for all kernels: a change drains the multiprocessors between two kernels.
  constexpr int kAllShared = 100;  // per cent
  if (Status s = check(api_.set_function_attribute(function, kSharedCarveout, kAllShared),
                       fmt::format("preparing kernel {}", name));
      !s.ok()) {
    return s.error();
  }
  functions_.emplace(key, function);
  return function;
}

Status Device::set_max_dynamic_smem(Function function, size_t n_bytes) {
  const std::lock_guard lock(mutex_);
  size_t& allowed = shared_bytes_[function];
  if (n_bytes <= std::max(allowed, kDefaultDynamicSmem)) return ok_status();
  allowed = n_bytes;
  return check(api_.set_function_attribute(function, kMaxDynamicShared, static_cast<int>(n_bytes)),
               "raising the shared memory limit");
}

Result<std::vector<PreparedLaunch>> Device::prepare(std::span<const KernelCall> calls) {
  std::vector<PreparedLaunch> launches;
  for (const KernelCall& call : calls) {
    ZINC_TRY(function, kernel(call.program, call.kernel.c_str()));
    if (Status s = set_max_dynamic_smem(function, call.launch.shared_bytes); !s.ok()) return s.error();
    launches.push_back({function, call.launch});
  }
  return launches;
}

Status Device::start(const PreparedLaunch& prepared, Stream stream, bool is_programmatic) const {
  const Launch& launch = prepared.launch;
  std::array<LaunchAttribute, 2> attributes{};
  unsigned n_attributes = 0;
  if (is_programmatic && limits_.has_dependent_launch()) {
    attributes[n_attributes].id = kProgrammaticLaunch;
    attributes[n_attributes++].value.number = 1;
  }
  if (launch.cluster > 1) {
    attributes[n_attributes].id = kClusterDimension;
    const std::array<unsigned, 3> blocks = {launch.cluster, 1, 1};
    std::ranges::copy(blocks, attributes[n_attributes++].value.dimensions);
  }
  const LaunchConfig config{.grid_x = launch.grid[0],
                            .grid_y = launch.grid[1],
                            .grid_z = launch.grid[2],
                            .block_x = launch.threads,
                            .block_y = 1,
                            .block_z = 1,
                            .shared_bytes = launch.shared_bytes,
                            .stream = stream,
                            .attributes = attributes.data(),
                            .n_attributes = n_attributes};
  void* params[] = {const_cast<std::byte*>(launch.params.data())};
  return check(api_.launch(&config, prepared.function, params, nullptr), "launching a kernel");
}

Status Device::copy_h2d(DevicePointer to, const void* from, size_t n_bytes) const {
  return check(api_.copy_h2d(to, from, n_bytes, stream_), "copying to the GPU");
}
Status Device::copy_d2h(void* to, DevicePointer from, size_t n_bytes) const {
  return check(api_.copy_d2h(to, from, n_bytes, stream_), "copying from the GPU");
}
Status Device::wait() const { return check(api_.synchronize_stream(stream_), "waiting for the GPU"); }

Result<GraphHandle> Device::capture_on(Stream stream, const std::vector<PreparedLaunch>& launches,
                                       std::span<const Event> events) const {
  if (Status s = check(api_.begin_capture(stream, kRelaxedCapture), "beginning a capture"); !s.ok()) return s.error();
  Status launched = ok_status();
  const auto record = [&](size_t i) {
    if (!events.empty() && launched.ok())
      launched = check(api_.record_event_with_flags(events[i], stream, kExternalEvent), "recording an event");
  };
  record(0);
  for (size_t i = 0; i < launches.size() && launched.ok(); ++i) {
    launched = start(launches[i], stream, i > 0 && events.empty());
    record(i + 1);
  }
  GraphHandle graph = nullptr;
  const Status ended = check(api_.end_capture(stream, &graph), "ending a capture");
  if (!launched.ok()) return launched.error();
  if (!ended.ok()) return ended.error();
  return graph;
}

// On a separate stream: work that other threads queue on a shared stream would become part of the graph.
Result<GraphExec> Device::capture(const std::vector<PreparedLaunch>& launches, std::span<const Event> events) const {
  Stream stream = nullptr;
  if (Status s = check(api_.create_stream(&stream, kNonBlocking), "creating a stream"); !s.ok()) return s.error();
  const Result<GraphHandle> captured = capture_on(stream, launches, events);
  api_.destroy_stream(stream);
  ZINC_TRY(graph, captured);
  GraphExec exec = nullptr;
  const Status instantiated = check(api_.instantiate(&exec, graph, 0), "instantiating a graph");
  api_.destroy_graph(graph);
  if (!instantiated.ok()) return instantiated.error();
  return exec;
}

}  // namespace zinc::cuda
