#include "backend/vulkan/peaks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/vulkan/params/device_tests.h"
#include "backend/vulkan/timestamps.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;   // much larger than any cache
constexpr size_t kCpuBytes = size_t{16} << 20;  // for CPU devices
constexpr int kRounds = 5;

// Bytes per second, the best of a few rounds.
Result<double> measure_reads(Device& device) {
  constexpr uint32_t kPerMultiprocessor = 8;
  const bool is_cpu = device.capabilities().type == vk::PhysicalDeviceType::eCpu;
  const uint32_t n_workgroups = kPerMultiprocessor * static_cast<uint32_t>(multiprocessors_of(device.capabilities()));
  const size_t grid_bytes = size_t{16} * kPeakLoadsInFlight * kThreads * n_workgroups;
  constexpr size_t kResultBytes = 16;  // behind the data
  const size_t max_bytes = std::min({is_cpu ? kCpuBytes : kMaxBytes, device.free_bytes() / 4,
                                     device.capabilities().max_allocation_bytes - kResultBytes});
  if (max_bytes < grid_bytes) return 0.0;
  const size_t n_bytes = max_bytes / grid_bytes * grid_bytes;
  ZINC_TRY(memory, device.allocate(n_bytes + kResultBytes, "the bandwidth test"));
  ZINC_TRY(params, device.allocate(2 * Device::kMaxParamsBytes, "the bandwidth test", Memory::upload));
  *params.host_ptr<shader::PeaksParams>() = {.from = memory.address(),
                                             .out = memory.address() + n_bytes,
                                             .n_quads = static_cast<uint32_t>(n_bytes / 16),
                                             .unused = 0};
  ZINC_TRY(kernel, device.pipeline({"peaks", {}}));
  ZINC_TRY(set, device.make_descriptor_set(params, params));
  const Timestamps timestamps(device, 2);
  double best = 0;
  for (int round = 0; round < kRounds && timestamps.is_available(); ++round) {
    const Result<TimelineValue> timeline_value = device.run([&](vk::CommandBuffer c) {
      timestamps.reset(c, 0, 2);
      c.bindPipeline(vk::PipelineBindPoint::eCompute, kernel);
      device.bind_params(c, set.set, 0, Device::kMaxParamsBytes);
      timestamps.write(c, 0);
      c.dispatch(n_workgroups, 1, 1);
      timestamps.write(c, 1);
    });
    if (!timeline_value.ok() || !device.wait(timeline_value.value()).ok()) break;
    const std::vector<double> ns = timestamps.read(0, 2);
    if (!ns.empty() && ns[1] > 0) best = std::max(best, static_cast<double>(n_bytes) / (ns[1] * 1e-9));
  }
  device.free_descriptor_set(set);
  return best;
}

}  // namespace

DevicePeaks measure_device_peaks(Device& device) {
  const Result<double> reads = measure_reads(device);
  return {.read_bytes_per_s = reads.ok() ? reads.value() : 0};
}

}  // namespace zinc::vulkan
