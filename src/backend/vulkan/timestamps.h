// A pool of device timestamps: written between the commands of a command buffer, read when it has run.
#pragma once

#include <vector>

#include "backend/vulkan/device.h"

namespace zinc::vulkan {

class Timestamps {
 public:
  Timestamps(const Device& device, uint32_t n_timestamps) : device_(device) {
    if (!device.has_timestamps()) return;
    const auto created =
        device.handle().createQueryPool({.queryType = vk::QueryType::eTimestamp, .queryCount = n_timestamps});
    if (created.result == vk::Result::eSuccess) pool_ = created.value;
  }
  ~Timestamps() { device_.handle().destroy(pool_); }
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  bool is_available() const { return bool(pool_); }
  void reset(vk::CommandBuffer c, uint32_t first, uint32_t n) const { c.resetQueryPool(pool_, first, n); }
  // Written when all commands before it have ended.
  void write(vk::CommandBuffer c, uint32_t index) const {
    c.writeTimestamp(vk::PipelineStageFlagBits::eBottomOfPipe, pool_, index);
  }
  // Nanoseconds since the first of them, n values; empty: not available. REQUIRES: the commands have run.
  std::vector<double> read(uint32_t first, uint32_t n) const {
    const auto [code, ticks] =
        device_.handle().getQueryPoolResults<uint64_t>(pool_, first, n, n * sizeof(uint64_t), sizeof(uint64_t),
                                                       vk::QueryResultFlagBits::e64 | vk::QueryResultFlagBits::eWait);
    if (code != vk::Result::eSuccess) return {};
    std::vector<double> ns;
    for (const uint64_t tick : ticks) {
      ns.push_back(tick <= ticks[0] ? 0 : static_cast<double>(tick - ticks[0]) * device_.capabilities().timestamp_ns);
    }
    return ns;
  }

 private:
  const Device& device_;
  vk::QueryPool pool_;
};

}  // namespace zinc::vulkan
