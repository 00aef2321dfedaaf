// NVRTC on the host: kernels are compiled by the C++ compiler the project was built with, with the headers of device/
// in place of those that wrap PTX. A cubin is a shared library.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 13, kFailed = 6;
const fs::path kDevice = EMULATED_GPU_SOURCE "/device";
constexpr const char* kCompiler =
    EMULATED_GPU_COMPILER " -w -std=c++20 -O1 -march=native -ffp-contract=off -fno-gnu-unique -shared -fPIC";

struct Program {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  // names and texts
  std::string code, log;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

fs::path own_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&own_library), &info) == 0) std::abort();
  return fs::canonical(info.dli_fname);
}

// Dynamic shared memory becomes a pointer to the image's own; static shared memory is `static`.
std::string for_the_host(const std::string& text) {
  static const std::regex pattern(R"(extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];)");
  return std::regex_replace(text, pattern, "$1* $2 = reinterpret_cast<$1*>(emulated_shared);");
}

std::string architecture_defines(int n_options, const char* const* options) {
  const std::string start = "--gpu-architecture=sm_";
  for (int i = 0; i < n_options; ++i) {
    const std::string option = options[i];
    if (!option.starts_with(start)) continue;
    const bool has_features = option.ends_with('a');
    const std::string number = option.substr(start.size(), option.size() - start.size() - (has_features ? 1 : 0));
    return "#define __CUDA_ARCH__ " + number + "0\n" + (has_features ? "#define __CUDA_ARCH_FEAT_SM90_ALL 1\n" : "");
  }
  return "";
}

// Compiles `folder`/kernel.cc; returns success, with the compiler's output in `log`.
bool build(const fs::path& folder, std::string& log) {
  const fs::path library = own_library();
  const std::string command = std::string(kCompiler) + " -I'" + folder.string() + "' '" +
                              (folder / "kernel.cc").string() + "' -o '" + (folder / "kernel.so").string() + "' '" +
                              library.string() + "' -Wl,-rpath,'" + library.parent_path().string() + "' 2> '" +
                              (folder / "log").string() + "'";
  const bool is_built = std::system(command.c_str()) == 0;
  log = read_file(folder / "log");
  return is_built;
}

}  // namespace

#define EMULATED extern "C" __attribute__((visibility("default")))

// The minor version hashes the compiler, its flags and its headers, so that cached kernels are invalidated when they
// change.
EMULATED int nvrtcVersion(int* major, int* minor) {
  std::string all;
  for (const char* name : {"builtins.h", "ptx.h", "runtime.h", "wgmma.h"}) all += read_file(kDevice / name);
  *major = kVersion;
  *minor = static_cast<int>(std::hash<std::string>{}(all + kCompiler) % 1'000'000);
  return 0;
}
EMULATED const char* nvrtcGetErrorString(int) { return "the C++ compiler failed"; }
EMULATED int nvrtcCreateProgram(Program** program, const char* source, const char*, int n, const char* const* texts,
                                const char* const* names) {
  *program = new Program{.source = source, .headers = {}, .code = {}, .log = {}};
  for (int i = 0; i < n; ++i) (*program)->headers.emplace_back(names[i], texts[i]);
  return 0;
}
EMULATED int nvrtcDestroyProgram(Program** program) { return delete *program, 0; }

EMULATED int nvrtcCompileProgram(Program* program, int n_options, const char* const* options) {
  std::string folder = (fs::temp_directory_path() / "emulated_gpu_XXXXXX").string();
  if (!mkdtemp(folder.data())) return kFailed;
  for (const auto& [name, text] : program->headers) write_file(fs::path(folder) / name, for_the_host(text));
  for (const char* name : {"ptx.h", "wgmma.h"}) {
    write_file(fs::path(folder) / "backend/simt" / name, read_file(kDevice / name));
  }
  for (const char* name : {"builtins.h", "runtime.h"}) write_file(fs::path(folder) / name, read_file(kDevice / name));
  write_file(fs::path(folder) / "kernel.cc",
             architecture_defines(n_options, options) + "#include \"builtins.h\"\n" + program->source);
  const bool is_built = build(folder, program->log);
  const std::string code = is_built ? read_file(fs::path(folder) / "kernel.so") : "";
  const size_t n_bytes = code.size();
  program->code = std::string(reinterpret_cast<const char*>(&n_bytes), sizeof n_bytes) + code;
  fs::remove_all(folder);
  return is_built ? 0 : kFailed;
}

EMULATED int nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, 0; }
EMULATED int nvrtcGetProgramLog(Program* program, char* text) {
  return std::memcpy(text, program->log.c_str(), program->log.size() + 1), 0;
}
EMULATED int nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->code.size(), 0; }
EMULATED int nvrtcGetCUBIN(Program* program, char* bytes) {
  return std::memcpy(bytes, program->code.data(), program->code.size()), 0;
}
