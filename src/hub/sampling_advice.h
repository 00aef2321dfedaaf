// How a model's makers want its answers drawn: from the file itself (general.sampling.*), else from what they publish
// about its family, else what most programs do. `run` and `chat` draw by it and say so beside the answer; a server
// draws as its APIs document and states it with the model (recommended_sampling).
#pragma once

#include <optional>
#include <string_view>

#include "gguf/gguf_file.h"

namespace zinc {

struct SamplingAdvice {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  std::string_view origin = "zinc's own";  // or "the file's", "SmolLM2's model card"
};

// `thinking`: whether it is told to think before it answers, or not to; some makers recommend otherwise then.
SamplingAdvice sampling_advice(const GgufFile& file, std::optional<bool> thinking = {});

}  // namespace zinc
