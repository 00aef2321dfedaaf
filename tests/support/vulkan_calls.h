// Counts what the Vulkan backend asks of its driver, in place of Vulkan-Hpp's dispatcher functions: what its own
// counters (vulkan::Counters) do not see is counted too. One per process, installed for good.
#pragma once

#include <map>
#include <mutex>

#include "backend/vulkan/api.h"

namespace zinc {

class VulkanCalls {
 public:
  // REQUIRES: the backend has loaded the driver, and makes no calls meanwhile.
  static VulkanCalls& install() {
    static VulkanCalls& calls = *new VulkanCalls();
    return calls;
  }

  size_t allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return allocated_bytes_;
  }
  // Allocations of memory, buffers, descriptor sets and command buffers; recordings; compiled pipelines.
  size_t n_preparations() const {
    const std::lock_guard lock(mutex_);
    return n_preparations_;
  }

 private:
  using Functions = vk::DispatchLoaderDynamic;
  VulkanCalls() {
    Functions& functions = VULKAN_HPP_DEFAULT_DISPATCHER;
    driver_ = functions;
    functions.vkAllocateMemory = [](VkDevice device, const VkMemoryAllocateInfo* info,
                                    const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
      return install().allocate(device, info, callbacks, memory);
    };
    functions.vkFreeMemory = [](VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks* callbacks) {
      install().free(device, memory, callbacks);
    };
    functions.vkCreateBuffer = [](auto... args) { return call_and_count<&Functions::vkCreateBuffer>(args...); };
    functions.vkAllocateDescriptorSets = [](auto... args) {
      return call_and_count<&Functions::vkAllocateDescriptorSets>(args...);
    };
    functions.vkAllocateCommandBuffers = [](auto... args) {
      return call_and_count<&Functions::vkAllocateCommandBuffers>(args...);
    };
    functions.vkBeginCommandBuffer = [](auto... args) {
      return call_and_count<&Functions::vkBeginCommandBuffer>(args...);
    };
    functions.vkCreateComputePipelines = [](auto... args) {
      return call_and_count<&Functions::vkCreateComputePipelines>(args...);
    };
  }

  template <auto kFunction>
  static VkResult call_and_count(auto... args) {
    VulkanCalls& calls = install();
    {
      const std::lock_guard lock(calls.mutex_);
      ++calls.n_preparations_;
    }
    return (calls.driver_.*kFunction)(args...);
  }

  VkResult allocate(VkDevice device, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* callbacks,
                    VkDeviceMemory* memory) {
    const VkResult result = driver_.vkAllocateMemory(device, info, callbacks, memory);
    const std::lock_guard lock(mutex_);
    ++n_preparations_;
    if (result != VK_SUCCESS) return result;
    sizes_[*memory] = info->allocationSize;
    allocated_bytes_ += info->allocationSize;
    return result;
  }
  void free(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks* callbacks) {
    driver_.vkFreeMemory(device, memory, callbacks);
    const std::lock_guard lock(mutex_);
    const auto size = sizes_.find(memory);
    if (size == sizes_.end()) return;  // allocated before install()
    allocated_bytes_ -= size->second;
    sizes_.erase(size);
  }

  Functions driver_;
  mutable std::mutex mutex_;
  std::map<VkDeviceMemory, size_t> sizes_;
  size_t allocated_bytes_ = 0, n_preparations_ = 0;
};

}  // namespace zinc
