#include "backend/vulkan/capabilities.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace zinc::vulkan {
namespace {

constexpr std::array<Tuning, 5> kTunings = {{
    {.vendor_id = 0x10DE,
     .subgroup = 32,
     .attention_workgroups = 128,
     .small_batch_rows = 8,
     .prefill_rows = 16,
     .moe_down_prefetch = 3,
     .float_loads_in_flight = 16,
     .float_loads_few_workgroups = 32,
     .default_multiprocessors = 132,
     .starts_in_order = true,   // observed on an H200
     .records_at_load = true},  // NVIDIA
    {.vendor_id = 0x1002,
     .subgroup = 32,
     .attention_workgroups = 128,
     .small_batch_rows = 8,
     .prefill_rows = 8,
     .moe_down_prefetch = 1,
     .float_loads_in_flight = 8,
     .float_loads_few_workgroups = 16,
     .default_multiprocessors = 96,
     .starts_in_order = false,
     .records_at_load = true},  // AMD: 16 rows spill
    {.vendor_id = 0x8086,
     .subgroup = 32,
     .attention_workgroups = 64,
     .small_batch_rows = 8,
     .prefill_rows = 8,
     .moe_down_prefetch = 1,
     .float_loads_in_flight = 8,
     .float_loads_few_workgroups = 8,
     .default_multiprocessors = 32,
     .starts_in_order = false,
     .records_at_load = true},  // Intel
    // Mesa on the CPU: compiling a kernel takes seconds, more with more rows.
    {.vendor_id = 0x10005,
     .subgroup = 8,
     .attention_workgroups = 16,
     .small_batch_rows = 4,
     .prefill_rows = 4,
     .moe_down_prefetch = 1,
     .float_loads_in_flight = 8,
     .float_loads_few_workgroups = 8,
     .default_multiprocessors = 2,
     .starts_in_order = true,
     .records_at_load = false},
    {.vendor_id = 0,
     .subgroup = 32,
     .attention_workgroups = 64,
     .small_batch_rows = 8,
     .prefill_rows = 8,
     .moe_down_prefetch = 1,
     .float_loads_in_flight = 8,
     .float_loads_few_workgroups = 8,
     .default_multiprocessors = 32,
     .starts_in_order = false,
     .records_at_load = true},
}};

bool has_extension(const InstanceApi& api, VkPhysicalDevice device, const char* name) {
  uint32_t n = 0;
  api.EnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr);
  std::vector<VkExtensionProperties> all(n);
  api.EnumerateDeviceExtensionProperties(device, nullptr, &n, all.data());
  return std::ranges::any_of(all, [&](const auto& e) { return std::strcmp(e.extensionName, name) == 0; });
}

void query_properties(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
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

// The number of multiprocessors, if a vendor extension reports it.
void query_multiprocessors(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
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
  out.n_multiprocessors = static_cast<int>(std::max(nvidia.shaderSMCount, units));
}

void query_features(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
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
  out.has_coopmat = matrices.cooperativeMatrix == VK_TRUE && v12.vulkanMemoryModel == VK_TRUE;
}

constexpr size_t kMatrixSharedBytes = size_t{48} << 10;  // shader/gemm*.comp use up to 48,384 bytes

// 16 x 16 cooperative matrices of a subgroup of 32: the largest K for int8, and whether f16 is supported.
void query_coopmat(const InstanceApi& api, VkPhysicalDevice device, Capabilities& out) {
  const auto list = reinterpret_cast<GetCooperativeMatrixProperties>(
      api.get(api.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!out.has_coopmat || subgroup_size(out) != 32 || !list) return;
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
      out.coopmat_k = std::max(out.coopmat_k, static_cast<int>(row.k));
    }
    if (out.has_float16 && row.k == 16 && multiplies(Row::kFloat16, Row::kFloat32)) out.has_coopmat_f16 = true;
  }
  if (!out.has_coopmat_f16) out.coopmat_k = 0;  // minima are multiplied in f16
}

}  // namespace

Capabilities query_capabilities(const InstanceApi& api, VkPhysicalDevice device) {
  Capabilities out;
  query_properties(api, device, out);
  if (out.api_version < VK_API_VERSION_1_3) return out;
  query_features(api, device, out);
  query_multiprocessors(api, device, out);
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
  query_coopmat(api, device, out);
  return out;
}

const Tuning& tuning_of(const Capabilities& device) {
  return *std::ranges::find_if(kTunings,
                               [&](const Tuning& t) { return t.vendor_id == device.vendor_id || t.vendor_id == 0; });
}

int subgroup_size(const Capabilities& device) {
  if (!device.has_subgroup_control) return device.default_subgroup;
  return std::clamp(tuning_of(device).subgroup, device.min_subgroup, device.max_subgroup);
}

int multiprocessors_of(const Capabilities& device) {
  return device.n_multiprocessors > 0 ? device.n_multiprocessors : tuning_of(device).default_multiprocessors;
}

std::string missing_feature(const Capabilities& device) {
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
  constexpr int kMaxSubgroup = 64;
  if (subgroup_size(device) < 4 || subgroup_size(device) > kMaxSubgroup) {
    return fmt::format("subgroups of 4 to 64 (it has {})", subgroup_size(device));
  }
  return "";
}

}  // namespace zinc::vulkan
