// Vulkan-Hpp without exceptions. The loader (libvulkan.so.1) is opened at run time, so that the program builds against
// the headers alone and starts without a driver: calls go through Vulkan-Hpp's dynamic dispatcher. One process-wide
// instance, never destroyed: drivers keep their own threads.
#pragma once

#define VK_NO_PROTOTYPES
#define VULKAN_HPP_NO_EXCEPTIONS
#define VULKAN_HPP_NO_STRUCT_CONSTRUCTORS  // for designated initializers
#define VULKAN_HPP_NO_SMART_HANDLE
#define VULKAN_HPP_DISPATCH_LOADER_DYNAMIC 1
#define VULKAN_HPP_ENABLE_DYNAMIC_LOADER_TOOL 0
#define VULKAN_HPP_ASSERT_ON_RESULT(succeeded)  // results are checked, not asserted
#include <vulkan/vulkan.hpp>

#include "base/result.h"

namespace zinc::vulkan {

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

// The instance of the installed loader, created once. The error tells what is missing and what to install.
Result<vk::Instance> load_instance();

}  // namespace zinc::vulkan
