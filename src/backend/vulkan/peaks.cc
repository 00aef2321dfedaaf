#include "backend/vulkan/peaks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/vulkan/params.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // many times any cache
constexpr size_t kCpuBytes = size_t{16} << 20;  // of a device that computes on the CPU
constexpr int kRounds = 5;

struct PeaksBlock {
  Address from, out;
  uint32_t n_quads, unused;
};

class Stopwatch {  // of the device's own clock
 public:
  explicit Stopwatch(const Device& device) : device_(device) {
    if (!device.has_timestamps()) return;
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 2;
    if (device.api().CreateQueryPool(device.handle(), &info, nullptr, &pool_) != VK_SUCCESS) pool_ = VK_NULL_HANDLE;
  }
  ~Stopwatch() {
    if (pool_) device_.api().DestroyQueryPool(device_.handle(), pool_, nullptr);
  }
  Stopwatch(const Stopwatch&) = delete;
  bool is_there() const { return pool_ != VK_NULL_HANDLE; }
  void reset(VkCommandBuffer c) const { device_.api().CmdResetQueryPool(c, pool_, 0, 2); }
  void note(VkCommandBuffer c, uint32_t which) const {
    device_.api().CmdWriteTimestamp(c, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, which);
  }
  double seconds() const {  // between both; 0: it cannot tell
    std::array<uint64_t, 2> ticks{};
    const VkResult got =
        device_.api().GetQueryPoolResults(device_.handle(), pool_, 0, 2, sizeof(ticks), ticks.data(), sizeof(uint64_t),
                                          VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    if (got != VK_SUCCESS || ticks[1] <= ticks[0]) return 0;
    return static_cast<double>(ticks[1] - ticks[0]) * device_.capabilities().timestamp_ns * 1e-9;
  }

 private:
  const Device& device_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
};

// Bytes a second, the best of a few rounds.
Result<double> measure_reads(Device& device) {
  constexpr uint32_t kPerProcessor = 8,
                     kAtOnce = 8;  // kAtOnce: shader/peaks.comp
  const bool is_cpu = device.capabilities().type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  const uint32_t n_workgroups = kPerProcessor * static_cast<uint32_t>(processors_of(device.capabilities()));
  const size_t unit = size_t{16} * kAtOnce * kThreads * n_workgroups;
  constexpr size_t kResult = 16;  // behind what is read
  const size_t wanted = std::min(
      {is_cpu ? kCpuBytes : kMostBytes, device.free_bytes() / 4, device.capabilities().max_allocation_bytes - kResult});
  if (wanted < unit) return 0.0;
  const size_t n_bytes = wanted / unit * unit;
  ZINC_TRY(memory, device.allocate(n_bytes + kResult, "measuring"));
  ZINC_TRY(params, device.allocate(2 * Device::kBlockBytes, "measuring", Memory::upload));
  *params.as<PeaksBlock>() = {memory.address(), memory.address() + n_bytes, static_cast<uint32_t>(n_bytes / 16), 0};
  ZINC_TRY(kernel, device.pipeline({"peaks", {}}));
  ZINC_TRY(set, device.describe(params, params));
  const Stopwatch watch(device);
  double best = 0;
  for (int round = 0; round < kRounds && watch.is_there(); ++round) {
    const Result<Ticket> ticket = device.run([&](VkCommandBuffer c) {
      const std::array<uint32_t, 2> offsets = {0, static_cast<uint32_t>(Device::kBlockBytes)};
      const DeviceApi& api = device.api();
      watch.reset(c);
      api.CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, kernel);
      api.CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, device.layout(), 0, 1, &set.set, 2, offsets.data());
      watch.note(c, 0);
      api.CmdDispatch(c, n_workgroups, 1, 1);
      watch.note(c, 1);
    });
    if (!ticket.ok() || !device.wait(ticket.value()).ok()) break;
    if (const double seconds = watch.seconds(); seconds > 0)
      best = std::max(best, static_cast<double>(n_bytes) / seconds);
  }
  device.free_set(set);
  return best;
}

}  // namespace

DevicePeaks measure_device_peaks(Device& device) {
  const Result<double> reads = measure_reads(device);
  return {.read_bytes_per_s = reads.ok() ? reads.value() : 0};
}

}  // namespace zinc::vulkan
