// Scores of a text, and their lines: shared by `zinc perplexity` and `zinc quantize --report`.
#pragma once

#include <string>

#include "engine/model_instance.h"
#include "engine/perplexity.h"

namespace zinc {

// Scores all windows on a runner of its own.
Result<TextScores> score_windows(const ModelInstance& model, const WindowedText& text, const ScoreOptions& options);

// "perplexity 12.3456 +/- 0.1234, ..."; with a baseline also its perplexity, KL divergence and top-1 agreement.
std::string scores_text(const TextScores& scores);

}  // namespace zinc
