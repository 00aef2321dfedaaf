#include "backend/vulkan/capabilities.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace zinc::vulkan {
namespace {

constexpr std::array<Tuning, 5> kTunings = {{
    {.vendor_id = 0x10DE,
     .subgroup = 32,
     .attention_groups = 128,
     .few_rows = 8,
     .product_rows = 16,
     .mix_ahead = 3,
     .float_pieces = 16,
     .float_pieces_alone = 32,
     .processors = 132,
     .starts_in_order = true,  // seen on an H200
     .records_ahead = true},   // NVIDIA
    {.vendor_id = 0x1002,
     .subgroup = 32,
     .attention_groups = 128,
     .few_rows = 8,
     .product_rows = 8,
     .mix_ahead = 1,
     .float_pieces = 8,
     .float_pieces_alone = 16,
     .processors = 96,
     .starts_in_order = false,
     .records_ahead = true},  // AMD: 16 rows spill
    {.vendor_id = 0x8086,
     .subgroup = 32,
     .attention_groups = 64,
     .few_rows = 8,
     .product_rows = 8,
     .mix_ahead = 1,
     .float_pieces = 8,
     .float_pieces_alone = 8,
     .processors = 32,
     .starts_in_order = false,
     .records_ahead = true},  // Intel
    // Mesa on the CPU: a kernel costs seconds to compile, more the more rows it has.
    {.vendor_id = 0x10005,
     .subgroup = 8,
     .attention_groups = 16,
     .few_rows = 4,
     .product_rows = 4,
     .mix_ahead = 1,
     .float_pieces = 8,
     .float_pieces_alone = 8,
     .processors = 2,
     .starts_in_order = true,
     .records_ahead = false},
    {.vendor_id = 0,
     .subgroup = 32,
     .attention_groups = 64,
     .few_rows = 8,
     .product_rows = 8,
     .mix_ahead = 1,
     .float_pieces = 8,
     .float_pieces_alone = 8,
     .processors = 32,
     .starts_in_order = false,
     .records_ahead = true},
}};

bool has_extension(const InstanceApi& api, VkPhysicalDevice device, const char* name) {
  uint32_t n = 0;
  api.EnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr);
  std::vector<VkExtensionProperties> all(n);
  api.EnumerateDeviceExtensionProperties(device, nullptr, &n, all.data());
  return std::ranges::any_of(all, [&](const auto& e) { return std::strcmp(e.extensionName, name) == 0; });
}

void ask_properties(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
  VkPhysicalDeviceVulkan13Properties v13{};
  v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES;
  VkPhysicalDeviceVulkan12Properties v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
  VkPhysicalDeviceVulkan11Properties v11{};
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &v11;
  v11.pNext = &v12;
  v12.pNext = &v13;
  api.GetPhysicalDeviceProperties2(device, &properties);
  const VkPhysicalDeviceProperties& base = properties.properties;
  out.name = base.deviceName;
  out.driver = std::string(v12.driverName) + " " + v12.driverInfo;
  out.vendor_id = base.vendorID;
  out.device_id = base.deviceID;
  out.driver_version = base.driverVersion;
  out.api_version = base.apiVersion;
  out.type = base.deviceType;
  out.cache_id.assign(base.pipelineCacheUUID, base.pipelineCacheUUID + VK_UUID_SIZE);
  out.cache_id.insert(out.cache_id.end(), v11.driverUUID, v11.driverUUID + VK_UUID_SIZE);
  out.default_subgroup = static_cast<int>(v11.subgroupSize);
  out.min_subgroup = static_cast<int>(v13.minSubgroupSize);
  out.max_subgroup = static_cast<int>(v13.maxSubgroupSize);
  out.has_shuffle = (v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
  out.has_subgroup_control = (v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  out.has_fast_integer_dot = v13.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
  out.shared_bytes = base.limits.maxComputeSharedMemorySize;
  out.max_allocation_bytes = std::min(v11.maxMemoryAllocationSize, v13.maxBufferSize);
  out.uniform_alignment = std::max<size_t>(16, base.limits.minUniformBufferOffsetAlignment);
  out.timestamp_ns = base.limits.timestampPeriod;
}

// How many processors there are, where an extension of the maker's tells.
void ask_processors(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{};
  nvidia.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
  VkPhysicalDeviceShaderCorePropertiesAMD amd{};
  amd.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  if (has_extension(api, device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    properties.pNext = &nvidia;
  } else if (has_extension(api, device, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    properties.pNext = &amd;
  } else {
    return;
  }
  api.GetPhysicalDeviceProperties2(device, &properties);
  const uint32_t units = amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
  out.n_processors = static_cast<int>(std::max(nvidia.shaderSMCount, units));
}

void ask_features(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
  CooperativeMatrixFeatures matrices;
  VkPhysicalDeviceVulkan13Features v13{};
  v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  if (has_extension(api, device, "VK_KHR_cooperative_matrix")) v13.pNext = &matrices;
  VkPhysicalDeviceVulkan12Features v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  v12.pNext = &v13;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &v12;
  api.GetPhysicalDeviceFeatures2(device, &features);
  out.has_addresses = v12.bufferDeviceAddress == VK_TRUE;
  out.has_scalar_layout = v12.scalarBlockLayout == VK_TRUE;
  out.has_timelines = v12.timelineSemaphore == VK_TRUE;
  out.has_int64 = features.features.shaderInt64 == VK_TRUE;
  out.has_integer_dot = v13.shaderIntegerDotProduct == VK_TRUE;
  out.has_full_subgroups = v13.computeFullSubgroups == VK_TRUE;
  out.has_subgroup_control = out.has_subgroup_control && v13.subgroupSizeControl == VK_TRUE;
  out.has_int8 = v12.shaderInt8 == VK_TRUE;
  out.has_float16 = v12.shaderFloat16 == VK_TRUE;
  out.has_matrices = matrices.cooperativeMatrix == VK_TRUE && v12.vulkanMemoryModel == VK_TRUE;
}

constexpr size_t kMatrixSharedBytes = size_t{48} << 10;  // shader/gemm*.comp take up to 48,384 bytes

// Products of 16 x 16 numbers that a subgroup of 32 does: the deepest of signed bytes, and whether there is one of
// halves.
void ask_matrices(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
  const auto list = reinterpret_cast<GetCooperativeMatrixProperties>(
      api.get(api.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!out.has_matrices || subgroup_for(out) != 32 || !list) return;
  uint32_t n = 0;
  list(device, &n, nullptr);
  std::vector<CooperativeMatrixProperties> all(n);
  list(device, &n, all.data());
  using Row = CooperativeMatrixProperties;
  for (const Row& row : all) {
    const auto multiplies = [&](uint32_t from, uint32_t into) {
      return row.a == from && row.b == from && row.c == into && row.result == into;
    };
    if (row.m != 16 || row.n != 16 || row.saturates == VK_TRUE || row.scope != Row::kSubgroup) continue;
    const bool fits = (row.k == 16 || row.k == 32) && out.shared_bytes >= kMatrixSharedBytes;
    if (out.has_int8 && fits && multiplies(Row::kSigned8, Row::kSigned32)) {
      out.matrix_depth = std::max(out.matrix_depth, static_cast<int>(row.k));
    }
    if (out.has_float16 && row.k == 16 && multiplies(Row::kFloat16, Row::kFloat32)) out.has_half_matrices = true;
  }
  if (!out.has_half_matrices) out.matrix_depth = 0;  // minima are multiplied as halves
}

}  // namespace

Capabilities ask(const InstanceApi& api, VkPhysicalDevice device) {
  Capabilities out;
  ask_properties(api, device, out);
  if (out.api_version < VK_API_VERSION_1_3) return out;
  ask_features(api, device, out);
  ask_processors(api, device, out);
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  api.GetPhysicalDeviceMemoryProperties2(device, &memory);
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    out.device_memory_bytes = std::max<size_t>(out.device_memory_bytes, heap.size);
  }
  out.has_memory_budget = has_extension(api, device, "VK_EXT_memory_budget");
  out.has_statistics = has_extension(api, device, "VK_KHR_pipeline_executable_properties");
  ask_matrices(api, device, out);
  return out;
}

const Tuning& tuning_of(const Capabilities& device) {
  return *std::ranges::find_if(kTunings,
                               [&](const Tuning& t) { return t.vendor_id == device.vendor_id || t.vendor_id == 0; });
}

int subgroup_for(const Capabilities& device) {
  if (!device.has_subgroup_control) return device.default_subgroup;
  return std::clamp(tuning_of(device).subgroup, device.min_subgroup, device.max_subgroup);
}

int processors_of(const Capabilities& device) {
  return device.n_processors > 0 ? device.n_processors : tuning_of(device).processors;
}

std::string missing(const Capabilities& device) {
  if (device.api_version < VK_API_VERSION_1_3) {
    return fmt::format("Vulkan 1.3 (the driver has {}.{})", VK_API_VERSION_MAJOR(device.api_version),
                       VK_API_VERSION_MINOR(device.api_version));
  }
  if (!device.has_addresses) return "bufferDeviceAddress";
  if (!device.has_int64) return "shaderInt64";
  if (!device.has_scalar_layout) return "scalarBlockLayout";
  if (!device.has_timelines) return "timelineSemaphore";
  if (!device.has_integer_dot) return "shaderIntegerDotProduct";
  if (!device.has_shuffle) return "subgroup shuffles in compute shaders";
  constexpr int kLargestSubgroup = 64;
  if (subgroup_for(device) < 4 || subgroup_for(device) > kLargestSubgroup) {
    return fmt::format("subgroups of 4 to 64 (it has {})", subgroup_for(device));
  }
  return "";
}

}  // namespace zinc::vulkan
