// The kernels' SPIR-V as it is kept in the repository (kernels.spv, made by tools/shaders from shader/), inside the
// program. Immutable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::vulkan {

std::span<const uint32_t> find_kernel(std::string_view name);  // "linear.q4_k"; empty: there is none
std::vector<std::string_view> kernel_names();
uint64_t kernels_hash();                                     // of the sources they were made from
uint64_t hash_sources(const std::filesystem::path& folder);  // of a shader folder as it is now

}  // namespace zinc::vulkan
