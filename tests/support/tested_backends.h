// The backends tests run on: every one built in, and Vulkan's device on the CPU, which is only ever used by name.
#pragma once

#include <cstdlib>
#include <vector>

#include "backend/backend.h"
#include "base/cache_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZINC_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ZINC_IS_SANITIZED 1
#endif
#endif

namespace zinc {

// A device of Vulkan's as if it were a backend of its own; nullptr: Vulkan is not built in.
struct CpuDevice {
  static constexpr const char* kName = "vulkan:llvmpipe";
  static constexpr bool kHasHalfMatrices = false;
};
struct EmulatedDevice {  // tests/emulated_vulkan, where it is found before Vulkan's loader
  static constexpr const char* kName = "vulkan:emulated";
  static constexpr bool kHasHalfMatrices = true;
};
template <typename Named>
const BackendInfo* vulkan_device() {
  static const BackendInfo info = [] {
    const Result<const BackendInfo*> vulkan = find_backend("vulkan");
    if (!vulkan.ok()) return BackendInfo{};
    BackendInfo named = *vulkan.value();
    named.name = Named::kName;
    if (!Named::kHasHalfMatrices) named.attention_bits = 32;
    named.open = [](int n_threads) { return open_backend(Named::kName, n_threads); };
    named.usable = [] {
#if defined(ZINC_IS_SANITIZED)  // Mesa and its compiler leak and race in their own ways
      return false;
#else
      static const bool usable = open_backend(Named::kName, 1).ok();
      return usable;
#endif
    };
    return named;
  }();
  return info.open ? &info : nullptr;
}
inline const BackendInfo* cpu_vulkan() { return vulkan_device<CpuDevice>(); }
inline const BackendInfo* emulated_vulkan() { return vulkan_device<EmulatedDevice>(); }

// Compiled kernels are kept in the folder ZINC_TEST_CACHE names, if it names one, so that the processes in which a
// card's tests run side by side compile each once.
inline std::vector<const BackendInfo*> tested_backends() {
  if (const char* folder = std::getenv("ZINC_TEST_CACHE")) keep_caches_in(folder);
  std::vector<const BackendInfo*> all;
  for (const BackendInfo* const* b = kBackends; *b; ++b) all.push_back(*b);
  if (cpu_vulkan()) all.push_back(cpu_vulkan());
  if (emulated_vulkan()) all.push_back(emulated_vulkan());
  return all;
}

inline std::vector<const BackendInfo*> usable_backends() {
  std::vector<const BackendInfo*> usable;
  for (const BackendInfo* backend : tested_backends()) {
    if (backend->usable()) usable.push_back(backend);
  }
  return usable;
}

}  // namespace zinc
