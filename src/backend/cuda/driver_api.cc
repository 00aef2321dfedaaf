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
#define X(field, symbol, parameters)                                        \
  api.field = reinterpret_cast<decltype(api.field)>(library.find(#symbol)); \
  if (!api.field && missing.empty()) missing = #symbol;
  ZINC_CUDA_FUNCTIONS(X)
#undef X
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
