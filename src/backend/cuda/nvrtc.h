// NVRTC, NVIDIA's run-time compiler: compiles kernel source to machine code for one GPU. Opened on first use.
#pragma once

#include <string>
#include <vector>

#include "backend/simt/host/kernel_program.h"
#include "base/result.h"

namespace zinc::cuda {

using simt::host::SourceFile;

struct NvrtcApi;

class Nvrtc {
 public:
  // `library`: path of libnvrtc; empty: search the system and the CUDA toolkit.
  static Result<Nvrtc> open(const std::string& library = "");

  std::string version() const;  // "13.0"
  struct Compiled {
    std::vector<char> cubin;
    std::string log;
  };
  // `architecture`: "sm_90a". The error holds the compiler's log.
  Result<Compiled> compile(const std::string& source, const std::vector<SourceFile>& headers,
                           const std::string& architecture, bool with_resources = false) const;

 private:
  explicit Nvrtc(const NvrtcApi& api) : api_(&api) {}
  const NvrtcApi* api_;
};

}  // namespace zinc::cuda
