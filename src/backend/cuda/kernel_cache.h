// Cubins of kernel programs for one GPU architecture, cached on disk. The file name of an entry is a hash of everything
// it depends on; the file starts with a hash of its content. A corrupt or unwritable entry causes a compile, never an
// error.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/nvrtc.h"

namespace zinc::cuda {

extern const SourceFile kSimtSources[];  // all files of backend/simt, terminated by a null name
std::vector<SourceFile> simt_sources();
bool has_format(std::string_view name);  // a weight format of the kernels: backend/simt/format has its file

// One compilation unit: a kernel file of backend/simt, with the weight formats it is compiled for.
struct KernelProgram {
  std::string file;        // "linear"
  std::string format;      // "q4_k", or several: "q4_k+q6_k"; empty: none
  std::string shape = "";  // compile-time shape, as a definition of kShape or kKvFormat; empty: none
  std::string source() const;
};

// Defines a program's compile-time shape. A shape is a struct of ints (backend/simt/params): they are written in the
// order of their declaration.
template <class Shape>
std::string shape_definition(std::string_view type, const Shape& shape) {
  std::string ints;
  for (const int n : std::bit_cast<std::array<int, sizeof(Shape) / sizeof(int)>>(shape)) {
    ints += fmt::format("{}{}", ints.empty() ? "" : ", ", n);
  }
  return fmt::format("inline constexpr {} kShape = {{{}}};", type, ints);
}

class KernelCache {
 public:
  // `library`: a path to libnvrtc, empty: the system's.
  KernelCache(std::string architecture, std::filesystem::path cache_dir, std::string library = "")
      : architecture_(std::move(architecture)), cache_dir_(std::move(cache_dir)), library_(std::move(library)) {}

  Result<std::vector<char>> get_or_compile(const KernelProgram& program);  // any thread
  int n_compiled() const { return n_compiled_; }
  const std::string& architecture() const { return architecture_; }

 private:
  std::filesystem::path path_of(const std::string& source, const std::string& compiler) const;
  std::string architecture_;
  std::filesystem::path cache_dir_;
  std::string library_;
  Result<Nvrtc> compiler();

  std::mutex mutex_;
  std::optional<Nvrtc> compiler_;
  std::atomic<int> n_compiled_ = 0;
};

}  // namespace zinc::cuda
