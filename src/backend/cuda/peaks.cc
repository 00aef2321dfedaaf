#include "backend/cuda/peaks.h"

#include <algorithm>

#include "backend/simt/params.h"

namespace zinc::cuda {
namespace {

constexpr size_t kReadBytes = size_t{1} << 30;  // much larger than any cache
constexpr int kRounds = 5;

// The fastest of a few runs, in seconds; 0: failed.
double best_time(Device& device, const PreparedLaunch& launch) {
  Event from = nullptr, to = nullptr;
  if (device.api().create_event(&from, 0) != kSuccess || device.api().create_event(&to, 0) != kSuccess) return 0;
  float best = 0;
  for (int round = 0; round < kRounds; ++round) {
    device.api().record_event(from, device.stream());
    const Status launched = device.run(launch);
    device.api().record_event(to, device.stream());
    float ms = 0;
    if (!launched.ok() || device.api().synchronize_event(to) != kSuccess ||
        device.api().elapsed_ms(&ms, from, to) != kSuccess) {
      break;
    }
    best = round == 0 ? ms : std::min(best, ms);
  }
  device.api().destroy_event(from);
  device.api().destroy_event(to);
  return static_cast<double>(best) * 1e-3;
}

}  // namespace

DevicePeaks measure_device_peaks(Device& device) {
  DevicePeaks peaks;
  if (!device.make_current().ok()) return peaks;
  const Result<Function> reader = device.kernel({"peaks", ""}, "read_memory");
  const Result<Buffer> bytes = device.allocate(kReadBytes, "measuring");
  const Result<Buffer> sums = device.allocate(sizeof(int), "measuring");
  if (!reader.ok() || !bytes.ok() || !sums.ok()) return peaks;
  const simt::ReadParams params{bytes.value().device_ptr<const unsigned char>(), static_cast<long long>(kReadBytes),
                                sums.value().device_ptr<int>()};
  const unsigned n_blocks = static_cast<unsigned>(device.limits().n_sms) * 8;
  const double seconds = best_time(device, {reader.value(), Launch::of(params, n_blocks)});
  if (seconds > 0) peaks.read_bytes_per_s = static_cast<double>(kReadBytes) / seconds;
  return peaks;
}

}  // namespace zinc::cuda
