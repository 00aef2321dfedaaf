// The Vulkan functions this backend uses, as tables. The loader (libvulkan.so.1) is opened at run time, so that the
// program builds against the headers alone and starts without a driver. One process-wide instance, never destroyed:
// drivers keep their own threads.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "base/result.h"

namespace zinc::vulkan {

#define ZINC_VULKAN_INSTANCE_FUNCTIONS(X)   \
  X(EnumeratePhysicalDevices)               \
  X(GetPhysicalDeviceProperties2)           \
  X(GetPhysicalDeviceFeatures2)             \
  X(GetPhysicalDeviceMemoryProperties2)     \
  X(GetPhysicalDeviceQueueFamilyProperties) \
  X(EnumerateDeviceExtensionProperties)     \
  X(CreateDevice)                           \
  X(GetDeviceProcAddr)

#define ZINC_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice)                      \
  X(GetDeviceQueue)                     \
  X(QueueSubmit)                        \
  X(DeviceWaitIdle)                     \
  X(AllocateMemory)                     \
  X(FreeMemory)                         \
  X(MapMemory)                          \
  X(CreateBuffer)                       \
  X(DestroyBuffer)                      \
  X(GetBufferMemoryRequirements)        \
  X(BindBufferMemory)                   \
  X(GetBufferDeviceAddress)             \
  X(CreateCommandPool)                  \
  X(DestroyCommandPool)                 \
  X(AllocateCommandBuffers)             \
  X(FreeCommandBuffers)                 \
  X(BeginCommandBuffer)                 \
  X(EndCommandBuffer)                   \
  X(CmdCopyBuffer)                      \
  X(CmdFillBuffer)                      \
  X(CmdPipelineBarrier)                 \
  X(CmdBindPipeline)                    \
  X(CmdBindDescriptorSets)              \
  X(CmdDispatch)                        \
  X(CmdResetQueryPool)                  \
  X(CmdWriteTimestamp)                  \
  X(CreateQueryPool)                    \
  X(DestroyQueryPool)                   \
  X(GetQueryPoolResults)                \
  X(CreateSemaphore)                    \
  X(DestroySemaphore)                   \
  X(WaitSemaphores)                     \
  X(CreateShaderModule)                 \
  X(DestroyShaderModule)                \
  X(CreateDescriptorSetLayout)          \
  X(DestroyDescriptorSetLayout)         \
  X(CreateDescriptorPool)               \
  X(DestroyDescriptorPool)              \
  X(AllocateDescriptorSets)             \
  X(UpdateDescriptorSets)               \
  X(CreatePipelineLayout)               \
  X(DestroyPipelineLayout)              \
  X(CreatePipelineCache)                \
  X(DestroyPipelineCache)               \
  X(GetPipelineCacheData)               \
  X(CreateComputePipelines)             \
  X(DestroyPipeline)

// VK_KHR_cooperative_matrix, which the headers of common distributions lack.
struct CooperativeMatrixFeatures {
  static constexpr auto kType = static_cast<VkStructureType>(1000506000);
  VkStructureType sType = kType;
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE, cooperativeMatrixRobustBufferAccess = VK_FALSE;
};
struct CooperativeMatrixProperties {
  static constexpr auto kType = static_cast<VkStructureType>(1000506001);
  static constexpr uint32_t kFloat16 = 0, kFloat32 = 1, kSigned8 = 3, kSigned32 = 5, kSubgroup = 3;
  VkStructureType sType = kType;
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t a = 0, b = 0, c = 0, result = 0;  // element types
  VkBool32 saturates = VK_FALSE;
  uint32_t scope = 0;
};
using GetCooperativeMatrixProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, CooperativeMatrixProperties*);

struct InstanceApi {
  VkInstance instance = VK_NULL_HANDLE;
  PFN_vkGetInstanceProcAddr get = nullptr;
#define X(name) PFN_vk##name name = nullptr;
  ZINC_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
};

struct DeviceApi {
  PFN_vkGetPipelineExecutableStatisticsKHR GetPipelineExecutableStatisticsKHR = nullptr;  // set only with statistics
#define X(name) PFN_vk##name name = nullptr;
  ZINC_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
};

// The installed loader and its instance, created once. The error tells what is missing and what to install.
Result<const InstanceApi*> load_instance();
Result<DeviceApi> load_device(const InstanceApi& instance, VkDevice device);
std::string_view result_name(VkResult code);  // "out of device memory"

}  // namespace zinc::vulkan
