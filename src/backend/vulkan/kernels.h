// The committed SPIR-V of the kernels (kernels.spv, built by tools/shaders from shader/), embedded in the program.
// Immutable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::vulkan {

std::span<const uint32_t> find_kernel(std::string_view name);  // "linear.q4_k"; empty: none
std::vector<std::string_view> kernel_names();
bool has_format(std::string_view name);  // a weight format of the kernels: shader/format has its file
uint64_t kernels_hash();                 // of the sources the kernels were built from
uint64_t hash_sources(const std::filesystem::path& shaders);  // of that folder and of the params folders, on disk

}  // namespace zinc::vulkan
