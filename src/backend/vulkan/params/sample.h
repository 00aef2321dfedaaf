// Parameters of sample_parts.comp and sample_rows.comp. Declared once: host C++, and GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kSampleSplits = 128;  // parts of a row of logits searched in parallel

namespace shader {

struct SampleParams {
  uint64_t logits;
  uint64_t best, best_id;  // [R, kSampleSplits]: logit_key() and id of the best token of each part
  uint64_t chunk_best;     // [sampled rows, chunks]: logit_key() of the maximum
  uint64_t chunks;         // likewise: chunks that can hold a kept token, ascending
  int vocab;
};

}  // namespace shader
}  // namespace zinc::vulkan
