// NVIDIA's run-time compiler, opened when first needed: kernel source in, machine code for one GPU out.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace zinc::cuda {

struct SourceFile {
  const char* name;  // as it is included
  const char* text;
};

struct NvrtcApi;

class Nvrtc {
 public:
  // `library`: a path to libnvrtc; empty: where the system and the CUDA toolkit keep it.
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
