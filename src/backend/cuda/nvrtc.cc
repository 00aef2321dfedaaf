#include "backend/cuda/nvrtc.h"

#include <array>
#include <sstream>

#include "base/shared_library.h"

namespace zinc::cuda {

using Program = struct ProgramHandle*;

struct NvrtcApi {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int code) = nullptr;
  int (*create)(Program* program, const char* source, const char* name, int n_headers, const char* const* headers,
                const char* const* names) = nullptr;
  int (*destroy)(Program* program) = nullptr;
  int (*compile)(Program program, int n_options, const char* const* options) = nullptr;
  int (*log_size)(Program program, size_t* bytes) = nullptr;
  int (*log)(Program program, char* text) = nullptr;
  int (*cubin_size)(Program program, size_t* bytes) = nullptr;
  int (*cubin)(Program program, char* bytes) = nullptr;
};

namespace {

constexpr std::array<const char*, 5> kLibraryPaths = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                                      "/usr/local/cuda/lib64/libnvrtc.so",
                                                      "/opt/cuda/lib64/libnvrtc.so"};

Result<SharedLibrary> open_library(const std::string& library) {
  if (!library.empty()) return SharedLibrary::open(library);
  for (const char* path : kLibraryPaths) {
    if (Result<SharedLibrary> found = SharedLibrary::open(path); found.ok()) return found;
  }
  return fail(
      ErrorCode::unsupported,
      "NVIDIA's run-time compiler (libnvrtc) is not installed, so GPU kernels cannot be compiled; install the CUDA "
      "toolkit, or its NVRTC library alone, and add it to the library path");
}

// libnvrtc opens libnvrtc-builtins by bare name; if it is not on the library path, we open it first.
void open_builtins(const SharedLibrary& library, const NvrtcApi& api, int major, int minor) {
  const std::filesystem::path folder = library.folder_of(reinterpret_cast<const void*>(api.version));
  if (folder.empty()) return;
  const auto builtins = folder / fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  [[maybe_unused]] const Result<SharedLibrary> opened = SharedLibrary::open(builtins.string());
}

class OwnedProgram {
 public:
  OwnedProgram(const NvrtcApi& api, Program program) : api_(api), program_(program) {}
  ~OwnedProgram() { api_.destroy(&program_); }
  OwnedProgram(const OwnedProgram&) = delete;
  OwnedProgram& operator=(const OwnedProgram&) = delete;
  Program get() const { return program_; }

 private:
  const NvrtcApi& api_;
  Program program_;
};

std::string read_log(const NvrtcApi& api, Program program) {
  size_t n_bytes = 0;
  if (api.log_size(program, &n_bytes) != 0 || n_bytes == 0) return "";
  std::string log(n_bytes, '\0');
  if (api.log(program, log.data()) != 0) return "";
  log.resize(log.find('\0') == std::string::npos ? log.size() : log.find('\0'));
  return log;
}

// The log on one line, for an error message.
std::string one_line(const std::string& log) {
  std::string text;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

}  // namespace

Result<Nvrtc> Nvrtc::open(const std::string& name) {
  ZINC_TRY(library, open_library(name));
  static NvrtcApi api;  // one library per process
  bool complete = true;
  const auto bind = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(symbol));
    complete = complete && function != nullptr;
  };
  bind(api.version, "nvrtcVersion");
  bind(api.error_string, "nvrtcGetErrorString");
  bind(api.create, "nvrtcCreateProgram");
  bind(api.destroy, "nvrtcDestroyProgram");
  bind(api.compile, "nvrtcCompileProgram");
  bind(api.log_size, "nvrtcGetProgramLogSize");
  bind(api.log, "nvrtcGetProgramLog");
  bind(api.cubin_size, "nvrtcGetCUBINSize");
  bind(api.cubin, "nvrtcGetCUBIN");
  int major = 0, minor = 0;
  if (!complete || api.version(&major, &minor) != 0 || major < 12) {
    return fail(ErrorCode::unsupported, "libnvrtc is too old ({}.{}); 12.0 or newer is needed", major, minor);
  }
  open_builtins(library, api, major, minor);
  return Nvrtc(api);
}

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

Result<Nvrtc::Compiled> Nvrtc::compile(const std::string& source, const std::vector<SourceFile>& headers,
                                       const std::string& architecture, bool with_resources) const {
  std::vector<const char*> texts, names;
  for (const SourceFile& header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  Program created = nullptr;
  if (const int code = api_->create(&created, source.c_str(), "zinc.cu", static_cast<int>(headers.size()), texts.data(),
                                    names.data());
      code != 0) {
    return fail(ErrorCode::unsupported, "NVRTC rejected a kernel program: {}", api_->error_string(code));
  }
  const OwnedProgram program(*api_, created);
  // Without --fmad=false the same expression could round differently in two kernels.
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {target.c_str(), "--std=c++17", "--fmad=false"};
  if (with_resources) options.push_back("--ptxas-options=-v");
  const int code = api_->compile(program.get(), static_cast<int>(options.size()), options.data());
  Compiled compiled;
  compiled.log = read_log(*api_, program.get());
  if (code != 0) {
    return fail(ErrorCode::unsupported, "a GPU kernel failed to compile for {} with NVRTC {}: {}: {}", architecture,
                version(), api_->error_string(code), one_line(compiled.log));
  }
  size_t n_bytes = 0;
  if (api_->cubin_size(program.get(), &n_bytes) != 0) n_bytes = 0;
  compiled.cubin.resize(n_bytes);
  if (n_bytes == 0 || api_->cubin(program.get(), compiled.cubin.data()) != 0) {
    return fail(ErrorCode::unsupported, "NVRTC {} produced no machine code for {}", version(), architecture);
  }
  return compiled;
}

}  // namespace zinc::cuda
