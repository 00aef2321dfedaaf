#include "cli/perplexity_report.h"

#include <fmt/format.h>

#include <cmath>

namespace zinc {

Result<TextScores> score_windows(const ModelInstance& model, const WindowedText& text, const ScoreOptions& options) {
  constexpr int kStepTokens = 128;  // the logits of each step are copied to the host
  ZINC_TRY(runner,
           ModelRunner::create(model, {.context = text.window, .step_tokens = kStepTokens, .all_logits = true}));
  return score_text(runner, text, options);
}

std::string scores_text(const TextScores& scores) {
  const double mean = mean_of(scores.nll), error = error_of_mean(scores.nll);
  std::string text = fmt::format("perplexity {:.4f} +/- {:.4f}, mean nll {:.6f} over {} tokens\n", std::exp(mean),
                                 std::exp(mean) * error, mean, scores.nll.size());
  if (scores.divergence.empty()) return text;
  const auto n = static_cast<double>(scores.divergence.size());
  text += fmt::format("baseline perplexity {:.4f}\n", std::exp(mean_of(scores.baseline_nll)));
  text +=
      fmt::format("KL divergence mean {:.6f}, median {:.6f}, p99 {:.6f}, max {:.6f}\n", mean_of(scores.divergence),
                  quantile(scores.divergence, 0.5), quantile(scores.divergence, 0.99), quantile(scores.divergence, 1));
  return text + fmt::format("top-1 agreement {:.2f} %\n", 100 * scores.n_same_top / n);
}

}  // namespace zinc
