// libcuda.so.1 and libnvrtc.so.13 in one, for tests of error messages: the environment variable BROKEN names the part
// that fails. They report one GPU, or two for "none of two", and compute nothing; "touched" aborts the program in
// cuInit.
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kOutOfMemory = 2, kNoDevice = 100, kDoesNotCompile = 6;
constexpr size_t kFewBytes = size_t{1} << 21, kManyBytes = size_t{8} << 30;

bool is_broken(const char* part) {
  const char* broken = std::getenv("BROKEN");
  return broken && std::strcmp(broken, part) == 0;
}
size_t memory() { return is_broken("memory") ? kFewBytes : kManyBytes; }
size_t n_allocated = 0;

int allocate(void** at, size_t n_bytes) {
  if (n_allocated + n_bytes > memory()) return kOutOfMemory;
  n_allocated += n_bytes;
  *at = std::calloc(n_bytes, 1);
  return 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (is_broken("touched")) std::abort();
  return is_broken("gpu") ? kNoDevice : 0;
}
int cuDriverGetVersion(int* version) { return *version = is_broken("driver") ? 11020 : 12040, 0; }
int cuGetErrorString(int, const char** text) { return *text = "no CUDA-capable device is detected", 0; }
int cuDeviceGetCount(int* n) { return *n = is_broken("none of two") ? 2 : 1, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int, int device) {
  return std::strcpy(name, device == 0 ? "Broken GPU" : "Second GPU"), 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16;
  *value = attribute == kMajor             ? (is_broken("old gpu") ? 6 : 8)
           : attribute == kMinor           ? 0
           : attribute == kMultiprocessors ? 4
                                           : 100 << 10;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* n_bytes, int) { return *n_bytes = memory(), 0; }
int cuMemGetInfo_v2(size_t* n_free, size_t* n_all) { return *n_free = memory() - n_allocated, *n_all = memory(), 0; }
int cuMemAlloc_v2(void** at, size_t n_bytes) { return allocate(at, n_bytes); }
int cuMemAllocHost_v2(void** at, size_t n_bytes) { return *at = std::calloc(n_bytes, 1), 0; }

#define NO_OP(name) \
  int name(...) { return 0; }
NO_OP(cuDevicePrimaryCtxRetain)
NO_OP(cuCtxSetCurrent)
NO_OP(cuMemFree_v2)
NO_OP(cuMemFreeHost)
NO_OP(cuMemcpyHtoDAsync_v2)
NO_OP(cuMemcpyDtoHAsync_v2)
NO_OP(cuMemcpyDtoDAsync_v2)
NO_OP(cuMemsetD8Async)
NO_OP(cuModuleLoadData)
NO_OP(cuModuleGetFunction)
NO_OP(cuFuncSetAttribute)
NO_OP(cuLaunchKernelEx)
NO_OP(cuStreamCreate)
NO_OP(cuStreamDestroy_v2)
NO_OP(cuStreamSynchronize)
NO_OP(cuEventCreate)
NO_OP(cuEventDestroy_v2)
NO_OP(cuEventRecord)
NO_OP(cuEventRecordWithFlags)
NO_OP(cuEventSynchronize)
NO_OP(cuEventElapsedTime)
NO_OP(cuStreamBeginCapture_v2)
NO_OP(cuStreamEndCapture)
NO_OP(cuGraphInstantiateWithFlags)
NO_OP(cuGraphDestroy)
NO_OP(cuGraphExecDestroy)
NO_OP(cuGraphLaunch)

int nvrtcVersion(int* major, int* minor) { return *major = is_broken("compiler") ? 11 : 13, *minor = 0, 0; }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
NO_OP(nvrtcCreateProgram)
NO_OP(nvrtcDestroyProgram)
int nvrtcCompileProgram(...) { return is_broken("kernel") ? kDoesNotCompile : 0; }
constexpr char kLog[] = "zinc.cu(12): error: identifier is undefined\n\n1 error detected\n";
int nvrtcGetProgramLogSize(void*, size_t* n_bytes) { return *n_bytes = sizeof(kLog), 0; }
int nvrtcGetProgramLog(void*, char* text) { return std::memcpy(text, kLog, sizeof(kLog)), 0; }
int nvrtcGetCUBINSize(void*, size_t* n_bytes) { return *n_bytes = 1, 0; }
int nvrtcGetCUBIN(void*, char* bytes) { return *bytes = 'x', 0; }

}  // extern "C"
