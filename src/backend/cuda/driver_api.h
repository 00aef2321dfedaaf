// The CUDA driver API functions this backend uses, as a table. libcuda is opened at run time, so that the program
// builds and starts without it; tests fill the table with fakes. The types match the driver's stable ABI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace zinc::cuda {

using Code = int;  // CUresult; 0 is success
inline constexpr Code kSuccess = 0, kOutOfMemory = 2, kNotReady = 600;
using DevicePointer = unsigned long long;
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using GraphHandle = struct CapturedGraph*;
using GraphExec = struct ExecutableGraph*;

enum DeviceAttribute : int {
  kSmCount = 16,
  kMajor = 75,
  kMinor = 76,
  kMaxSharedOptIn = 97,
  kClusterLaunch = 120,
};
inline constexpr int kMaxDynamicShared = 8;     // function attribute
inline constexpr int kSharedCarveout = 9;       // likewise
inline constexpr unsigned kNonBlocking = 1;     // stream flag
inline constexpr unsigned kRelaxedCapture = 2;  // capture mode
inline constexpr unsigned kExternalEvent = 1;   // record flag: in a capture, the event becomes a node of the graph
inline constexpr int kClusterDimension = 4;     // launch attribute: cluster size
inline constexpr int kProgrammaticLaunch = 6;   // likewise: programmatic dependent launch (PDL)

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int number;
    unsigned dimensions[3];
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned n_attributes;
};

struct DriverApi {
  Code (*init)(unsigned flags) = nullptr;
  Code (*driver_version)(int* version) = nullptr;
  Code (*error_string)(Code code, const char** text) = nullptr;
  Code (*device_count)(int* count) = nullptr;
  Code (*device_get)(int* device, int ordinal) = nullptr;
  Code (*device_name)(char* name, int length, int device) = nullptr;
  Code (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Code (*device_memory)(size_t* bytes, int device) = nullptr;
  Code (*retain_context)(Context* context, int device) = nullptr;
  Code (*set_context)(Context context) = nullptr;
  Code (*memory_info)(size_t* free, size_t* total) = nullptr;
  Code (*allocate)(DevicePointer* ptr, size_t bytes) = nullptr;
  Code (*free)(DevicePointer ptr) = nullptr;
  Code (*allocate_host)(void** ptr, size_t bytes) = nullptr;
  Code (*free_host)(void* ptr) = nullptr;
  Code (*copy_h2d)(DevicePointer to, const void* from, size_t bytes, Stream stream) = nullptr;
  Code (*copy_d2h)(void* to, DevicePointer from, size_t bytes, Stream stream) = nullptr;
  Code (*copy_d2d)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream) = nullptr;
  Code (*fill)(DevicePointer ptr, unsigned char value, size_t bytes, Stream stream) = nullptr;
  Code (*load_module)(Module* module, const void* image) = nullptr;
  Code (*find_function)(Function* function, Module module, const char* name) = nullptr;
  Code (*set_function_attribute)(Function function, int attribute, int value) = nullptr;
  Code (*launch)(const LaunchConfig* config, Function function, void** params, void** extra) = nullptr;
  Code (*create_stream)(Stream* stream, unsigned flags) = nullptr;
  Code (*destroy_stream)(Stream stream) = nullptr;
  Code (*synchronize_stream)(Stream stream) = nullptr;
  Code (*create_event)(Event* event, unsigned flags) = nullptr;
  Code (*destroy_event)(Event event) = nullptr;
  Code (*record_event)(Event event, Stream stream) = nullptr;
  Code (*record_event_with_flags)(Event event, Stream stream, unsigned flags) = nullptr;
  Code (*synchronize_event)(Event event) = nullptr;
  Code (*elapsed_ms)(float* ms, Event from, Event to) = nullptr;
  Code (*begin_capture)(Stream stream, unsigned mode) = nullptr;
  Code (*end_capture)(Stream stream, GraphHandle* graph) = nullptr;
  Code (*instantiate)(GraphExec* exec, GraphHandle graph, unsigned long long flags) = nullptr;
  Code (*destroy_graph)(GraphHandle graph) = nullptr;
  Code (*destroy_exec)(GraphExec exec) = nullptr;
  Code (*launch_graph)(GraphExec exec, Stream stream) = nullptr;
};

// The installed driver, loaded once. The error says what is missing and what to install.
Result<const DriverApi*> load_driver();

}  // namespace zinc::cuda
