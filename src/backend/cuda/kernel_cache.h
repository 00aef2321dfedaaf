// Cubins of kernel programs for one GPU architecture, cached on disk. The file name of an entry is a hash of everything
// it depends on; the file starts with a hash of its content. A corrupt or unwritable entry causes a compile, never an
// error.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/nvrtc.h"
#include "backend/simt/host/kernel_program.h"

namespace zinc::cuda {

using simt::host::KernelProgram;

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
