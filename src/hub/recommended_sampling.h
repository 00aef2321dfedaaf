// Recommended sampling parameters of a model: from the file (general.sampling.*), else from the model card or
// generation_config.json of its family, else common defaults. `run` and `chat` use and report them; the server uses
// them for requests that leave sampling out.
#pragma once

#include <optional>
#include <string_view>

#include "gguf/gguf_file.h"
#include "graph/sampling_params.h"

namespace zinc {

struct RecommendedSampling {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  std::string_view origin = "zinc's own";  // or "the file's", "SmolLM2's model card"
  float dry_multiplier = 0.0f;             // 0: DRY is off
};

// `thinking`: whether thinking is enabled; some model cards recommend different values for the two modes.
RecommendedSampling recommended_sampling(const GgufFile& file, std::optional<bool> thinking = {});
SamplingParams sampling_params(const RecommendedSampling& recommended);  // the others are neutral

}  // namespace zinc
