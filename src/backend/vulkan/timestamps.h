// A pool of device timestamps: written between the commands of a command buffer, read when it has run.
#pragma once

#include <vector>

#include "backend/vulkan/device.h"

namespace zinc::vulkan {

class Timestamps {
 public:
  Timestamps(const Device& device, uint32_t n_timestamps) : device_(device) {
    if (!device.has_timestamps()) return;
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = n_timestamps;
    if (device.api().CreateQueryPool(device.handle(), &info, nullptr, &pool_) != VK_SUCCESS) pool_ = VK_NULL_HANDLE;
  }
  ~Timestamps() {
    if (pool_) device_.api().DestroyQueryPool(device_.handle(), pool_, nullptr);
  }
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  bool is_available() const { return pool_ != VK_NULL_HANDLE; }
  void reset(VkCommandBuffer c, uint32_t first, uint32_t n) const {
    device_.api().CmdResetQueryPool(c, pool_, first, n);
  }
  // Written when all commands before it have ended.
  void write(VkCommandBuffer c, uint32_t index) const {
    device_.api().CmdWriteTimestamp(c, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, index);
  }
  // Nanoseconds since the first of them, n values; empty: not available. REQUIRES: the commands have run.
  std::vector<double> read(uint32_t first, uint32_t n) const {
    std::vector<uint64_t> ticks(n);
    const VkResult code = device_.api().GetQueryPoolResults(
        device_.handle(), pool_, first, n, ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    if (code != VK_SUCCESS) return {};
    std::vector<double> ns;
    for (const uint64_t tick : ticks) {
      ns.push_back(tick <= ticks[0] ? 0 : static_cast<double>(tick - ticks[0]) * device_.capabilities().timestamp_ns);
    }
    return ns;
  }

 private:
  const Device& device_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
};

}  // namespace zinc::vulkan
