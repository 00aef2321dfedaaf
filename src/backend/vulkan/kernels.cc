#include "backend/vulkan/kernels.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/check.h"

// The file itself, aligned for reading words.
asm(".section .rodata\n.balign 16\nzinc_vulkan_kernels:\n.incbin \"" ZINC_VULKAN_KERNELS
    "\"\nzinc_vulkan_kernels_end:\n.byte 0\n.balign 16\n.text\n");
extern "C" const unsigned char zinc_vulkan_kernels[];

namespace zinc::vulkan {
namespace {

// After the magic (8 bytes): hash, number of modules, entries, words. Fields are unaligned.
struct Entry {
  char name[32];
  uint32_t begin, n_words;
};
constexpr size_t kHashOffset = 8, kCountOffset = 16, kEntriesOffset = 20;

uint32_t n_kernels() {
  uint32_t n = 0;
  std::memcpy(&n, zinc_vulkan_kernels + kCountOffset, sizeof(n));
  return n;
}
const Entry* entries() { return reinterpret_cast<const Entry*>(zinc_vulkan_kernels + kEntriesOffset); }

}  // namespace

std::span<const uint32_t> find_kernel(std::string_view name) {
  const auto* words = reinterpret_cast<const uint32_t*>(entries() + n_kernels());
  for (uint32_t i = 0; i < n_kernels(); ++i) {
    if (entries()[i].name == name) return {words + entries()[i].begin, entries()[i].n_words};
  }
  return {};
}

std::vector<std::string_view> kernel_names() {
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i < n_kernels(); ++i) names.emplace_back(entries()[i].name);
  return names;
}

bool has_format(std::string_view name) { return !find_kernel("linear." + std::string(name)).empty(); }

uint64_t kernels_hash() {
  uint64_t hash = 0;
  std::memcpy(&hash, zinc_vulkan_kernels + kHashOffset, sizeof(hash));
  return hash;
}

uint64_t hash_sources(const std::filesystem::path& shaders) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    hash *= 0x100000001b3u;  // a zero byte terminates each
  };
  const std::filesystem::path backends = shaders.parent_path().parent_path();
  for (const auto& folder : {shaders, backends / "gpu/params", backends / "vulkan/params"}) {
    std::vector<std::pair<std::string, std::filesystem::path>> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      files.emplace_back(entry.path().lexically_relative(folder).generic_string(), entry.path());
    }
    std::ranges::sort(files);
    for (const auto& [name, path] : files) {
      std::ifstream file(path, std::ios::binary);
      add(name);
      add(std::string(std::istreambuf_iterator<char>(file), {}));
    }
  }
  return hash;
}

}  // namespace zinc::vulkan
