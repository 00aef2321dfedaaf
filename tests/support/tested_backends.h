// The backends that tests run on: all compiled-in ones, and Vulkan on the CPU, which is used only by name.
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

// A Vulkan device as a separate backend; nullptr: Vulkan is not compiled in.
struct CpuDevice {
  static constexpr const char* kName = "vulkan:llvmpipe";
  static constexpr bool kHasHalfMatrices = false;
};
struct EmulatedDevice {  // tests/emulated_vulkan, if it is found before the Vulkan loader
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
    if (!Named::kHasHalfMatrices) named.attention_activation_bits = 32;
    named.open = [](int n_threads) { return open_backend(Named::kName, n_threads); };
    named.is_available = [] {
#if defined(ZINC_IS_SANITIZED)  // Mesa and its compiler have leaks and races of their own
      return false;
#else
      static const bool available = open_backend(Named::kName, 1).ok();
      return available;
#endif
    };
    return named;
  }();
  return info.open ? &info : nullptr;
}
inline const BackendInfo* cpu_vulkan() { return vulkan_device<CpuDevice>(); }
inline const BackendInfo* emulated_vulkan() { return vulkan_device<EmulatedDevice>(); }

// A model split over two kinds of devices, for tests that open a model by the name of its devices.
inline const BackendInfo* split_devices() {
  static const BackendInfo info = [] {
    BackendInfo named = *find_backend("reference").value();
    named.name = "cpu,reference";
    return named;
  }();
  return &info;
}

// If ZINC_TEST_CACHE is set, compiled kernels are cached in that folder, so that the parallel test processes of a GPU
// run compile each kernel once.
inline std::vector<const BackendInfo*> tested_backends() {
  if (const char* folder = std::getenv("ZINC_TEST_CACHE")) set_cache_folder(folder);
  std::vector<const BackendInfo*> all;
  for (const BackendInfo* const* b = kBackends; *b; ++b) all.push_back(*b);
  if (cpu_vulkan()) all.push_back(cpu_vulkan());
  if (emulated_vulkan()) all.push_back(emulated_vulkan());
  return all;
}

inline std::vector<const BackendInfo*> available_backends() {
  std::vector<const BackendInfo*> available;
  for (const BackendInfo* backend : tested_backends()) {
    if (backend->is_available()) available.push_back(backend);
  }
  return available;
}

}  // namespace zinc
