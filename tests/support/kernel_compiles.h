// For tests that compile CUDA kernels without a GPU: finds NVRTC and lists the programs that do not compile or that
// spill registers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/cuda/kernel_cache.h"

namespace zinc::cuda {

// libnvrtc of the Python package; "": not installed.
inline std::string packaged_library() {
  const char* const command =
      "python3 -c \"import glob, sys; "
      "print(next(iter(sum((glob.glob(p + '/nvidia/*/lib/libnvrtc.so.1?') for p in sys.path), [])), ''), end='')\" "
      "2>/dev/null";
  std::array<char, 4096> text{};
  std::FILE* const pipe = popen(command, "r");
  if (!pipe) return "";
  const size_t n = std::fread(text.data(), 1, text.size(), pipe);
  pclose(pipe);
  return std::string(text.data(), n);
}

inline const std::string* nvrtc_library() {  // nullptr: NVRTC is not installed
  static const std::string found = packaged_library();
  static const bool is_installed = Nvrtc::open(found).ok();
  return is_installed ? &found : nullptr;
}

// "... 24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads": whether there are spills.
inline bool has_spills(std::string_view resources) {
  for (const std::string_view what : {" bytes spill stores", " bytes spill loads"}) {
    const size_t at = resources.find(what);
    if (at != std::string_view::npos && !resources.substr(0, at).ends_with(", 0")) return true;
  }
  return false;
}

// The kernels that spill registers, from the compiler's log.
inline std::string spills_of(std::string_view log) {
  constexpr std::string_view kEntry = "Compiling entry function '";
  std::string found;
  for (size_t at = log.find(kEntry); at != std::string_view::npos;) {
    const size_t name = at + kEntry.size(), next = log.find(kEntry, name);
    const std::string_view kernel = log.substr(name, log.find('\'', name) - name), part = log.substr(name, next - name);
    if (has_spills(part)) {
      const size_t spill = part.find(" bytes spill"), line = part.rfind('\n', spill) + 1;
      found += fmt::format("{}: {}; ", kernel, part.substr(line, part.find('\n', spill) - line));
    }
    at = next;
  }
  return found;
}

// Compile errors and spills. Two threads: all programs of one architecture take a minute on one core.
inline std::vector<std::string> compile_failures(const std::vector<KernelProgram>& all,
                                                 const std::string& architecture) {
  const Nvrtc compiler = Nvrtc::open(*nvrtc_library()).value();
  std::vector<std::string> messages(all.size());
  const auto compile = [&](size_t first) {
    for (size_t i = first; i < all.size(); i += 2) {
      const auto& [file, format, shape, kv_format] = all[i];
      const Result<Nvrtc::Compiled> compiled =
          compiler.compile(all[i].source(), simt::host::simt_sources(), architecture, /*with_resources=*/true);
      if (!compiled.ok()) {
        messages[i] = fmt::format("{} {}{} {}: {}", file, format, kv_format, shape, compiled.error().message);
      } else if (const std::string spills = spills_of(compiled.value().log); !spills.empty()) {
        messages[i] = fmt::format("{} {}{} {} spills: {}", file, format, kv_format, shape, spills);
      }
    }
  };
  std::thread other(compile, 1);
  compile(0);
  other.join();
  std::erase(messages, "");
  return messages;
}

}  // namespace zinc::cuda
