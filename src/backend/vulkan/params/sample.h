// Parameters of sample.comp. Declared once: host C++, and GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kSampleSplits = 128;  // parts of a row of logits searched in parallel

namespace shader {

struct SampleParams {
  uint64_t logits;
  uint64_t best, best_id;  // [R, kSampleSplits]
  int vocab;
};

}  // namespace shader
}  // namespace zinc::vulkan
