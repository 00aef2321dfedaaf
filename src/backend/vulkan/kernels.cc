#include "backend/vulkan/kernels.h"

#include <cstring>

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

std::vector<std::string_view> kv_format_names() {
  constexpr std::string_view kModule = "attention.";
  std::vector<std::string_view> names = kernel_names();
  std::erase_if(names, [&](std::string_view name) { return !name.starts_with(kModule); });
  for (std::string_view& name : names) name.remove_prefix(kModule.size());
  return names;
}

uint64_t kernels_hash() {
  uint64_t hash = 0;
  std::memcpy(&hash, zinc_vulkan_kernels + kHashOffset, sizeof(hash));
  return hash;
}

}  // namespace zinc::vulkan
