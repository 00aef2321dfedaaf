// For tests: the functions of the fake driver.
#pragma once

#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cuda/fake_driver.h"

namespace zinc::cuda {

inline FakeDriver& FakeDriver::current() {
  static FakeDriver driver;
  return driver;
}

inline std::recursive_mutex& FakeDriver::mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

inline Context& FakeDriver::context() {
  thread_local Context context = nullptr;
  return context;
}

inline Code check_context() {
  constexpr Code kInvalidContext = 201;
  if (FakeDriver::context()) return kSuccess;
  return ++FakeDriver::current().n_without_context, kInvalidContext;
}

inline Code work_on(Stream stream) {
  constexpr Code kNotWhileCapturing = 900;
  return stream == FakeDriver::current().capturing ? kNotWhileCapturing : check_context();
}

inline DriverApi make_fake_api() {
  DriverApi api;
  api.init = [](unsigned) { return kSuccess; };
  api.driver_version = [](int* version) { return *version = 13000, kSuccess; };
  api.error_string = [](Code, const char** text) { return *text = "a made-up error", kSuccess; };
  api.device_count = [](int* count) { return *count = 1, kSuccess; };
  api.device_get = [](int* device, int) { return *device = 0, kSuccess; };
  api.device_name = [](char* name, int, int) { return std::strcpy(name, "Fake GPU"), kSuccess; };
  api.device_attribute = [](int* value, int attribute, int) {
    *value = attribute == kMajor           ? FakeDriver::current().major
             : attribute == kMinor         ? FakeDriver::current().minor
             : attribute == kSmCount       ? FakeDriver::current().n_sms
             : attribute == kClusterLaunch ? FakeDriver::current().has_clusters
                                           : FakeDriver::current().shared_bytes;
    return kSuccess;
  };
  api.device_memory = [](size_t* bytes, int) { return *bytes = size_t{1} << 30, kSuccess; };
  api.retain_context = [](Context* context, int) {
    return *context = reinterpret_cast<Context>(&FakeDriver::current()), kSuccess;
  };
  api.set_context = [](Context context) { return FakeDriver::context() = context, kSuccess; };
  api.memory_info = [](size_t* free, size_t* total) {
    const std::lock_guard lock(FakeDriver::mutex());
    return *free = FakeDriver::current().free_bytes, *total = size_t{1} << 30, kSuccess;
  };
  api.allocate = [](DevicePointer* ptr, size_t bytes) {
    const std::lock_guard lock(FakeDriver::mutex());
    ++FakeDriver::current().n_allocations;
    if (const Code code = check_context(); code != kSuccess) return code;
    if (bytes > FakeDriver::current().free_bytes) return kOutOfMemory;
    FakeDriver::current().device_bytes += bytes;
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    *ptr = reinterpret_cast<DevicePointer>(memory);
    return kSuccess;
  };
  api.free = [](DevicePointer ptr) {
    const std::lock_guard lock(FakeDriver::mutex());
    return std::free(reinterpret_cast<void*>(ptr)), check_context();
  };
  api.allocate_host = [](void** ptr, size_t bytes) {
    const std::lock_guard lock(FakeDriver::mutex());
    return ++FakeDriver::current().n_allocations, *ptr = std::calloc(bytes, 1), check_context();
  };
  api.free_host = [](void* ptr) {
    const std::lock_guard lock(FakeDriver::mutex());
    return std::free(ptr), check_context();
  };
  api.copy_h2d = [](DevicePointer to, const void* from, size_t bytes, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (const Code code = work_on(stream); code != kSuccess || !FakeDriver::current().keeps_bytes) return code;
    return ++FakeDriver::current().n_copies_h2d, std::memcpy(reinterpret_cast<void*>(to), from, bytes), kSuccess;
  };
  api.copy_d2h = [](void* to, DevicePointer from, size_t bytes, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (const Code code = work_on(stream); code != kSuccess) return code;
    return ++FakeDriver::current().n_copies_d2h, std::memcpy(to, reinterpret_cast<void*>(from), bytes), kSuccess;
  };
  api.copy_d2d = [](DevicePointer to, DevicePointer from, size_t bytes, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    constexpr Code kUnknown = 999;
    if (const Code code = work_on(stream); code != kSuccess) return code;
    if (FakeDriver::current().copies_fail) return kUnknown;
    return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), kSuccess;
  };
  api.fill = [](DevicePointer ptr, unsigned char value, size_t bytes, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (const Code code = work_on(stream); code != kSuccess || !FakeDriver::current().keeps_bytes) return code;
    return std::memset(reinterpret_cast<void*>(ptr), value, bytes), kSuccess;
  };
  api.load_module = [](Module* module, const void* code) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (const Code missing = check_context(); missing != kSuccess) return missing;
    ++FakeDriver::current().n_modules;
    *module = reinterpret_cast<Module>(&FakeDriver::current().modules.emplace_back(static_cast<const char*>(code)));
    return kSuccess;
  };
  api.find_function = [](Function* function, Module module, const char* name) {
    const std::lock_guard lock(FakeDriver::mutex());
    const std::string& code = *reinterpret_cast<std::string*>(module);
    *function = reinterpret_cast<Function>(&FakeDriver::current().functions.emplace_back(FakeFunction{name, code}));
    return kSuccess;
  };
  api.set_function_attribute = [](Function, int, int) { return kSuccess; };
  api.launch = [](const LaunchConfig* config, Function function, void** params, void**) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (config->stream != FakeDriver::current().capturing) return kSuccess;
    const std::byte* bytes = static_cast<const std::byte*>(params[0]);
    const auto& [kernel, code] = *reinterpret_cast<FakeFunction*>(function);
    FakeDriver::current().captured.push_back({kernel,
                                              code,
                                              *config,
                                              {config->attributes, config->attributes + config->n_attributes},
                                              {bytes, bytes + 1024}});
    return kSuccess;
  };
  api.create_stream = [](Stream* stream, unsigned) {
    const std::lock_guard lock(FakeDriver::mutex());
    return *stream = reinterpret_cast<Stream>(++FakeDriver::current().n_streams), kSuccess;
  };
  api.destroy_stream = [](Stream) { return kSuccess; };
  api.synchronize_stream = [](Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    return ++FakeDriver::current().n_stream_waits, work_on(stream);
  };
  api.create_event = [](Event* event, unsigned) {
    const std::lock_guard lock(FakeDriver::mutex());
    return *event = reinterpret_cast<Event>(&FakeDriver::current()), kSuccess;
  };
  api.destroy_event = [](Event) {
    const std::lock_guard lock(FakeDriver::mutex());
    return check_context();
  };
  api.record_event = [](Event, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    return work_on(stream);
  };
  api.record_event_with_flags = [](Event, Stream, unsigned flags) {
    const std::lock_guard lock(FakeDriver::mutex());
    FakeDriver::current().n_captured_events += flags == kExternalEvent ? 1 : 0;
    return check_context();
  };
  api.synchronize_event = [](Event) {
    const std::lock_guard lock(FakeDriver::mutex());
    return ++FakeDriver::current().n_event_waits, check_context();
  };
  api.elapsed_ms = [](float* ms, Event, Event) { return *ms = 1, kSuccess; };
  api.begin_capture = [](Stream stream, unsigned) {
    const std::lock_guard lock(FakeDriver::mutex());
    ++FakeDriver::current().n_captures;
    FakeDriver::current().capturing = stream;
    FakeDriver::current().captured.clear();
    if (const auto others = std::exchange(FakeDriver::current().on_capture, {})) others();
    return kSuccess;
  };
  api.end_capture = [](Stream, GraphHandle* graph) {
    const std::lock_guard lock(FakeDriver::mutex());
    FakeDriver::current().capturing = nullptr;
    *graph = reinterpret_cast<GraphHandle>(&FakeDriver::current().graphs.emplace_back(FakeDriver::current().captured));
    return kSuccess;
  };
  api.instantiate = [](GraphExec* exec, GraphHandle graph, unsigned long long) {
    return *exec = reinterpret_cast<GraphExec>(graph), kSuccess;
  };
  api.destroy_graph = [](GraphHandle) { return kSuccess; };
  api.destroy_exec = [](GraphExec) {
    const std::lock_guard lock(FakeDriver::mutex());
    return check_context();
  };
  api.launch_graph = [](GraphExec exec, Stream stream) {
    const std::lock_guard lock(FakeDriver::mutex());
    if (const Code code = work_on(stream); code != kSuccess) return code;
    ++FakeDriver::current().n_replays;
    FakeDriver::current().last_replay = reinterpret_cast<const std::vector<FakeLaunch>*>(exec);
    return kSuccess;
  };
  return api;
}

inline const DriverApi& FakeDriver::api() {
  static const DriverApi api = make_fake_api();
  return api;
}

}  // namespace zinc::cuda
