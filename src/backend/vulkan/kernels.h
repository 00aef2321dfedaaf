// The committed SPIR-V of the kernels (kernels.spv, built by tools/shaders from shader/), embedded in the program.
// Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::vulkan {

std::span<const uint32_t> find_kernel(std::string_view name);  // "linear.q4_k"; empty: none
std::vector<std::string_view> kernel_names();
bool has_format(std::string_view name);           // a weight format of the kernels: shader/format has its file
std::vector<std::string_view> kv_format_names();  // the files of shader/kv_format
uint64_t kernels_hash();                          // of the sources the kernels were built from

}  // namespace zinc::vulkan
