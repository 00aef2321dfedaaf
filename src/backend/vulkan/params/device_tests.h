// Parameters of what a device is tested and measured with: self_test.comp, dispatch_order.comp, peaks.comp. Declared
// once: host C++, and GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kPeakLoadsInFlight = 8;  // 16-byte loads per thread of peaks.comp

namespace shader {

struct SelfTestParams {
  uint64_t from, out;  // from: [256] words
};

struct DispatchOrderParams {
  uint64_t producer_counter, own_counter, failed;  // counters
  int n_producers, unused;                         // n_producers 0: the first dispatch
};

struct PeaksParams {
  uint64_t from, out;
  uint32_t n_quads, unused;  // n_quads: a multiple of kPeakLoadsInFlight times the grid's threads
};

}  // namespace shader
}  // namespace zinc::vulkan
