#include "backend/simt/host/lowering.h"

#include <algorithm>

namespace zinc::simt::host {
namespace {

constexpr int64_t kMaxGridY = 65535;
}  // namespace

Status Lowering::add(const KernelProgram& program, const char* kernel, Launch launch, int64_t x, int64_t y, int64_t z,
                     size_t shared_bytes) {
  if (x <= 0 || y <= 0 || z <= 0) return ok_status();
  if (y > kMaxGridY || z > kMaxGridY || shared_bytes > static_cast<size_t>(device_.max_shared_bytes)) {
    return fail(ErrorCode::unsupported,
                "{}: a step of {} tokens exceeds the launch limits of kernel {} ({} x {} x {} blocks, {} bytes of "
                "shared memory)",
                device_.name, sizes_.max_tokens, kernel, x, y, z, shared_bytes);
  }
  late_trigger_.reset();
  launch.grid = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  launch.shared_bytes = static_cast<unsigned>(shared_bytes);
  calls_.push_back({program, kernel, launch, current_});
  return ok_status();
}

// third: two blocks fit on an SM, three do not. over_half: a second block of the same launch does not fit, but a block
// of the previous or next launch does.
void place_shared_memory(std::span<KernelCall> calls, const DeviceLimits& device) {
  const unsigned half = static_cast<unsigned>(decode_block_bytes(device)), over_half = half + (5 << 8),
                 third = half / 7 * 5;
  bool previous_is_large = false;
  for (KernelCall& call : calls) {
    const bool is_large = call.launch.grid[0] >= static_cast<unsigned>(device.n_sms) && !previous_is_large;
    call.launch.shared_bytes = std::max(call.launch.shared_bytes, is_large ? over_half : third);
    previous_is_large = call.launch.shared_bytes == over_half;
  }
}

Result<std::vector<KernelCall>> Lowering::run() {
  if (Status s = lower_rope_tables(); !s.ok()) return s.error();
  if (Status s = lower_calls(); !s.ok()) return s.error();
  if (has_few_rows() && device_.has_dependent_launch()) place_shared_memory(calls_, device_);
  return std::move(calls_);
}

}  // namespace zinc::simt::host
