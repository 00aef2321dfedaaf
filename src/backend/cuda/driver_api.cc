#include "backend/cuda/driver_api.h"

#include "base/shared_library.h"

namespace zinc::cuda {
namespace {

constexpr int kMinDriverVersion = 12000;  // CUDA 12.0, for cuLaunchKernelEx in captured graphs

Result<DriverApi> bind_driver() {
  const Result<SharedLibrary> opened = SharedLibrary::open("libcuda.so.1");
  if (!opened.ok()) {
    return fail(ErrorCode::not_found, "the NVIDIA driver is not installed ({})", opened.error().message);
  }
  const SharedLibrary& library = opened.value();
  DriverApi api;
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
    if (!function && missing.empty()) missing = name;
  };
  bind(api.init, "cuInit");
  bind(api.driver_version, "cuDriverGetVersion");
  bind(api.error_string, "cuGetErrorString");
  bind(api.device_count, "cuDeviceGetCount");
  bind(api.device_get, "cuDeviceGet");
  bind(api.device_name, "cuDeviceGetName");
  bind(api.device_attribute, "cuDeviceGetAttribute");
  bind(api.device_memory, "cuDeviceTotalMem_v2");
  bind(api.retain_context, "cuDevicePrimaryCtxRetain");
  bind(api.set_context, "cuCtxSetCurrent");
  bind(api.memory_info, "cuMemGetInfo_v2");
  bind(api.allocate, "cuMemAlloc_v2");
  bind(api.free, "cuMemFree_v2");
  bind(api.allocate_host, "cuMemAllocHost_v2");
  bind(api.free_host, "cuMemFreeHost");
  bind(api.copy_h2d, "cuMemcpyHtoDAsync_v2");
  bind(api.copy_d2h, "cuMemcpyDtoHAsync_v2");
  bind(api.copy_d2d, "cuMemcpyDtoDAsync_v2");
  bind(api.fill, "cuMemsetD8Async");
  bind(api.load_module, "cuModuleLoadData");
  bind(api.find_function, "cuModuleGetFunction");
  bind(api.set_function_attribute, "cuFuncSetAttribute");
  bind(api.launch, "cuLaunchKernelEx");
  bind(api.create_stream, "cuStreamCreate");
  bind(api.destroy_stream, "cuStreamDestroy_v2");
  bind(api.synchronize_stream, "cuStreamSynchronize");
  bind(api.create_event, "cuEventCreate");
  bind(api.destroy_event, "cuEventDestroy_v2");
  bind(api.record_event, "cuEventRecord");
  bind(api.record_event_with_flags, "cuEventRecordWithFlags");
  bind(api.synchronize_event, "cuEventSynchronize");
  bind(api.elapsed_ms, "cuEventElapsedTime");
  bind(api.begin_capture, "cuStreamBeginCapture_v2");
  bind(api.end_capture, "cuStreamEndCapture");
  bind(api.instantiate, "cuGraphInstantiateWithFlags");
  bind(api.destroy_graph, "cuGraphDestroy");
  bind(api.destroy_exec, "cuGraphExecDestroy");
  bind(api.launch_graph, "cuGraphLaunch");
  if (!missing.empty()) {
    return fail(ErrorCode::unsupported,
                "the NVIDIA driver is too old: libcuda.so.1 has no {}; install a driver for CUDA 12.0 or newer (525 or "
                "later)",
                missing);
  }
  return api;
}

Result<DriverApi> open_driver() {
  Result<DriverApi> api = bind_driver();
  if (!api.ok()) return api;
  int version = 0;
  if (api.value().driver_version(&version) != kSuccess || version < kMinDriverVersion) {
    return fail(
        ErrorCode::unsupported,
        "the NVIDIA driver is too old: it supports CUDA {}.{}, but 12.0 or newer is needed (driver 525 or later)",
        version / 1000, version % 1000 / 10);
  }
  if (const Code code = api.value().init(0); code != kSuccess) {
    const char* text = nullptr;
    api.value().error_string(code, &text);
    return fail(ErrorCode::not_found, "the NVIDIA driver found no usable GPU: {} (error {}); see nvidia-smi",
                text ? text : "unknown error", code);
  }
  return api;
}

}  // namespace

Result<const DriverApi*> load_driver() {
  static const Result<DriverApi> api = open_driver();  // the library is never closed
  if (!api.ok()) return api.error();
  return &api.value();
}

}  // namespace zinc::cuda
