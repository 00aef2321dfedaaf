#include "backend/vulkan/capabilities.h"

#include <algorithm>
#include <array>
#include <span>

namespace zinc::vulkan {
namespace {

constexpr std::array<Tuning, 4> kTunings = {{
    {.vendor_id = 0x10DE,
     .attention_workgroups = 128,
     .prefill_rows = 16,
     .moe_down_prefetch = 3,
     .float_loads_in_flight = 16,
     .float_loads_few_workgroups = 32,
     .default_multiprocessors = 132,
     .starts_in_order = true},  // NVIDIA, observed on an H200
    {.vendor_id = 0x1002,
     .attention_workgroups = 128,
     .float_loads_few_workgroups = 16,
     .default_multiprocessors = 96},  // AMD: 16 rows in prefill spill
    // Mesa on the CPU: compiling a kernel takes seconds, more with more rows.
    {.vendor_id = 0x10005,
     .subgroup = 8,
     .attention_workgroups = 16,
     .small_batch_rows = 4,
     .prefill_rows = 4,
     .default_multiprocessors = 2,
     .starts_in_order = true,
     .records_at_load = false},
    {},
}};

bool has_extension(vk::PhysicalDevice device, std::string_view name) {
  return std::ranges::any_of(device.enumerateDeviceExtensionProperties().value,
                             [&](const vk::ExtensionProperties& e) { return name == e.extensionName.data(); });
}

void query_properties(vk::PhysicalDevice device, Capabilities& out) {
  const auto all = device.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceVulkan11Properties,
                                         vk::PhysicalDeviceVulkan12Properties, vk::PhysicalDeviceVulkan13Properties>();
  const auto& base = all.get<vk::PhysicalDeviceProperties2>().properties;
  const auto& v11 = all.get<vk::PhysicalDeviceVulkan11Properties>();
  const auto& v12 = all.get<vk::PhysicalDeviceVulkan12Properties>();
  const auto& v13 = all.get<vk::PhysicalDeviceVulkan13Properties>();
  out.name = base.deviceName.data();
  out.driver = fmt::format("{} {}", v12.driverName.data(), v12.driverInfo.data());
  out.vendor_id = base.vendorID;
  out.device_id = base.deviceID;
  out.driver_version = base.driverVersion;
  out.api_version = base.apiVersion;
  out.type = base.deviceType;
  out.cache_id.assign(base.pipelineCacheUUID.begin(), base.pipelineCacheUUID.end());
  out.cache_id.insert(out.cache_id.end(), v11.driverUUID.begin(), v11.driverUUID.end());
  out.default_subgroup = static_cast<int>(v11.subgroupSize);
  out.min_subgroup = static_cast<int>(v13.minSubgroupSize);
  out.max_subgroup = static_cast<int>(v13.maxSubgroupSize);
  out.has_shuffle = bool(v11.subgroupSupportedOperations & vk::SubgroupFeatureFlagBits::eShuffle);
  out.has_subgroup_control = bool(v13.requiredSubgroupSizeStages & vk::ShaderStageFlagBits::eCompute);
  out.has_fast_integer_dot = v13.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
  out.shared_bytes = base.limits.maxComputeSharedMemorySize;
  out.max_allocation_bytes = std::min(v11.maxMemoryAllocationSize, v13.maxBufferSize);
  out.uniform_alignment = std::max<size_t>(16, base.limits.minUniformBufferOffsetAlignment);
  out.timestamp_ns = base.limits.timestampPeriod;
}

// The number of multiprocessors, if a vendor extension reports it; 0: none does.
uint32_t query_multiprocessors(vk::PhysicalDevice device) {
  if (has_extension(device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    using Nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV;
    return device.getProperties2<vk::PhysicalDeviceProperties2, Nvidia>().get<Nvidia>().shaderSMCount;
  }
  if (!has_extension(device, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) return 0;
  using Amd = vk::PhysicalDeviceShaderCorePropertiesAMD;
  const Amd amd = device.getProperties2<vk::PhysicalDeviceProperties2, Amd>().get<Amd>();
  return amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
}

void query_features(vk::PhysicalDevice device, Capabilities& out) {
  CooperativeMatrixFeatures matrices;
  vk::PhysicalDeviceVulkan13Features v13;
  if (has_extension(device, "VK_KHR_cooperative_matrix")) v13.pNext = &matrices;
  vk::PhysicalDeviceVulkan12Features v12{.pNext = &v13};
  vk::PhysicalDeviceFeatures2 features{.pNext = &v12};
  device.getFeatures2(&features);
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
void query_coopmat(vk::Instance instance, vk::PhysicalDevice device, Capabilities& out) {
  const auto list = reinterpret_cast<GetCooperativeMatrixProperties>(
      instance.getProcAddr("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
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

Capabilities query_capabilities(vk::Instance instance, vk::PhysicalDevice device) {
  Capabilities out;
  query_properties(device, out);
  if (out.api_version < VK_API_VERSION_1_3) return out;
  query_features(device, out);
  out.n_multiprocessors = static_cast<int>(query_multiprocessors(device));
  const vk::PhysicalDeviceMemoryProperties memory = device.getMemoryProperties2().memoryProperties;
  for (const vk::MemoryHeap& heap : std::span(memory.memoryHeaps).first(memory.memoryHeapCount)) {
    if (!(heap.flags & vk::MemoryHeapFlagBits::eDeviceLocal)) continue;
    out.device_memory_bytes = std::max<size_t>(out.device_memory_bytes, heap.size);
  }
  out.has_memory_budget = has_extension(device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  out.has_statistics = has_extension(device, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  query_coopmat(instance, device, out);
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

bool has_dedicated_memory(const Capabilities& device) {
  return device.type == vk::PhysicalDeviceType::eDiscreteGpu || device.type == vk::PhysicalDeviceType::eVirtualGpu;
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
