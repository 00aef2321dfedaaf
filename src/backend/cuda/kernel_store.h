// Machine code of kernel programs for one GPU architecture: from the cache folder if it was compiled before, else
// compiled and kept there. An entry is named by a hash of everything it depends on and carries one of its own bytes; a
// damaged or unwritable entry costs a compile, never an error.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/nvrtc.h"

namespace zinc::cuda {

extern const SourceFile kSimtSources[];  // every file of backend/simt, ended by a null name
std::vector<SourceFile> simt_sources();

// One compilation unit: a kernel file of backend/simt, for kernels of weights with the format they are for.
struct KernelProgram {
  std::string file;          // "linear"
  std::string format;        // "q4_k", or several: "q4_k+q6_k"; empty: none
  std::string shape = "";    // what it is made for, as a definition of kShape or kKept; empty: none
  std::string text() const;  // the program's source
};

class KernelStore {
 public:
  // `library`: a path to libnvrtc, empty: the system's.
  KernelStore(std::string architecture, std::filesystem::path folder, std::string library = "")
      : architecture_(std::move(architecture)), folder_(std::move(folder)), library_(std::move(library)) {}

  Result<std::vector<char>> cubin(const KernelProgram& program);  // any thread
  int n_compiled() const { return n_compiled_; }
  const std::string& architecture() const { return architecture_; }

 private:
  std::filesystem::path path_of(const std::string& text, const std::string& compiler) const;
  std::string architecture_;
  std::filesystem::path folder_;
  std::string library_;
  Result<Nvrtc> compiler();

  std::mutex mutex_;
  std::optional<Nvrtc> compiler_;
  std::atomic<int> n_compiled_ = 0;
};

}  // namespace zinc::cuda
