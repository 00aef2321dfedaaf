// The CUDA driver API functions this backend uses, as a table. libcuda is opened at run time, so that the program
// builds and starts without it; tests fill the table with fakes. The types match the driver's stable ABI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace zinc::cuda {

using Code = int;  // CUresult; 0 is success
inline constexpr Code kSuccess = 0, kOutOfMemory = 2;
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

// X(field, the driver's symbol, its parameters)
#define ZINC_CUDA_FUNCTIONS(X)                                                                                 \
  X(init, cuInit, (unsigned flags))                                                                            \
  X(driver_version, cuDriverGetVersion, (int* version))                                                        \
  X(error_string, cuGetErrorString, (Code code, const char** text))                                            \
  X(device_count, cuDeviceGetCount, (int* count))                                                              \
  X(device_get, cuDeviceGet, (int* device, int ordinal))                                                       \
  X(device_name, cuDeviceGetName, (char* name, int length, int device))                                        \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, int device))                           \
  X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                                          \
  X(retain_context, cuDevicePrimaryCtxRetain, (Context * context, int device))                                 \
  X(set_context, cuCtxSetCurrent, (Context context))                                                           \
  X(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                             \
  X(allocate, cuMemAlloc_v2, (DevicePointer * ptr, size_t bytes))                                              \
  X(free, cuMemFree_v2, (DevicePointer ptr))                                                                   \
  X(allocate_host, cuMemAllocHost_v2, (void** ptr, size_t bytes))                                              \
  X(free_host, cuMemFreeHost, (void* ptr))                                                                     \
  X(copy_h2d, cuMemcpyHtoDAsync_v2, (DevicePointer to, const void* from, size_t bytes, Stream stream))         \
  X(copy_d2h, cuMemcpyDtoHAsync_v2, (void* to, DevicePointer from, size_t bytes, Stream stream))               \
  X(copy_d2d, cuMemcpyDtoDAsync_v2, (DevicePointer to, DevicePointer from, size_t bytes, Stream stream))       \
  X(fill, cuMemsetD8Async, (DevicePointer ptr, unsigned char value, size_t bytes, Stream stream))              \
  X(load_module, cuModuleLoadData, (Module * module, const void* image))                                       \
  X(find_function, cuModuleGetFunction, (Function * function, Module module, const char* name))                \
  X(set_function_attribute, cuFuncSetAttribute, (Function function, int attribute, int value))                 \
  X(launch, cuLaunchKernelEx, (const LaunchConfig* config, Function function, void** params, void** extra))    \
  X(create_stream, cuStreamCreate, (Stream * stream, unsigned flags))                                          \
  X(destroy_stream, cuStreamDestroy_v2, (Stream stream))                                                       \
  X(synchronize_stream, cuStreamSynchronize, (Stream stream))                                                  \
  X(create_event, cuEventCreate, (Event * event, unsigned flags))                                              \
  X(destroy_event, cuEventDestroy_v2, (Event event))                                                           \
  X(record_event, cuEventRecord, (Event event, Stream stream))                                                 \
  X(record_event_with_flags, cuEventRecordWithFlags, (Event event, Stream stream, unsigned flags))             \
  X(synchronize_event, cuEventSynchronize, (Event event))                                                      \
  X(elapsed_ms, cuEventElapsedTime, (float* ms, Event from, Event to))                                         \
  X(begin_capture, cuStreamBeginCapture_v2, (Stream stream, unsigned mode))                                    \
  X(end_capture, cuStreamEndCapture, (Stream stream, GraphHandle * graph))                                     \
  X(instantiate, cuGraphInstantiateWithFlags, (GraphExec * exec, GraphHandle graph, unsigned long long flags)) \
  X(destroy_graph, cuGraphDestroy, (GraphHandle graph))                                                        \
  X(destroy_exec, cuGraphExecDestroy, (GraphExec exec))                                                        \
  X(launch_graph, cuGraphLaunch, (GraphExec exec, Stream stream))

struct DriverApi {
#define X(field, symbol, parameters) Code(*field) parameters = nullptr;
  ZINC_CUDA_FUNCTIONS(X)
#undef X
};

// The installed driver, loaded once. The error says what is missing and what to install.
Result<const DriverApi*> load_driver();

}  // namespace zinc::cuda
