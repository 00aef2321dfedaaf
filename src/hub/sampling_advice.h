// How a model's makers want its answers drawn: from the file itself (general.sampling.*), else from what they publish
// about its family, else what most programs do. Always shown to whoever gets an answer, never silently applied.
#pragma once

#include <string_view>

#include "gguf/gguf_file.h"

namespace zinc {

struct SamplingAdvice {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1.0f;
  std::string_view origin = "zinc's own";  // or "the file's", "SmolLM2's model card"
};

SamplingAdvice sampling_advice(const GgufFile& file);

}  // namespace zinc
