#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zinc {
namespace {

constexpr size_t kRowsAtOnce = 64;  // logits of a large vocabulary take half a megabyte per row

double divergence_from(const Prediction& baseline, std::span<const float> logits, double log_sum) {
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = baseline.log_probs[i], p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (logits[i] - log_sum));
  }
  return sum;
}

class Scorer {
 public:
  Scorer(const ScoreOptions& options, TextScores& scores) : options_(options), scores_(scores) {}

  // `target` is the actual token at the predicted position.
  Status add(std::span<const float> logits, TokenId target) {
    const double log_sum = log_sum_exp(logits);
    if (!std::isfinite(log_sum)) {
      return fail(ErrorCode::invalid_input,
                  "the model's logits for scored token {} are not finite; the file is damaged or overflows its format",
                  scores_.nll.size());
    }
    scores_.nll.push_back(log_sum - logits[static_cast<size_t>(target)]);
    if (options_.save) {
      if (Status saved = options_.save->add(logits, log_sum, target); !saved.ok()) return saved;
    }
    if (options_.baseline) compare(logits, log_sum);
    return ok_status();
  }

 private:
  void compare(std::span<const float> logits, double log_sum) {
    options_.baseline->read(scores_.divergence.size(), prediction_);
    scores_.divergence.push_back(divergence_from(prediction_, logits, log_sum));
    scores_.baseline_nll.push_back(-prediction_.target_log_prob);
    const auto top = std::ranges::max_element(logits) - logits.begin();
    scores_.n_same_top += top == prediction_.top ? 1 : 0;
  }

  const ScoreOptions& options_;
  TextScores& scores_;
  Prediction prediction_;
};

Status score_window(ModelRunner& runner, std::span<const TokenId> window, Scorer& scorer) {
  runner.move_to(0);
  size_t begin = window.size() / 2;
  ZINC_TRY(unscored, runner.feed(window.first(begin)));
  for (; begin + 1 < window.size(); begin += kRowsAtOnce) {
    const size_t n_rows = std::min(window.size() - 1 - begin, kRowsAtOnce);
    ZINC_TRY(logits, runner.feed_with_all_logits(window.subspan(begin, n_rows)));
    const size_t n_vocab = logits.size() / n_rows;
    for (size_t row = 0; row < n_rows; ++row) {
      const std::span<const float> of_row = std::span(logits).subspan(row * n_vocab, n_vocab);
      if (Status scored = scorer.add(of_row, window[begin + row + 1]); !scored.ok()) return scored;
    }
  }
  return ok_status();
}

}  // namespace

std::span<const TokenId> WindowedText::at(int index) const {
  const size_t n = static_cast<size_t>(window);
  return std::span(tokens).subspan(static_cast<size_t>(index) * n, n);
}

Result<WindowedText> cut_into_windows(std::vector<TokenId> tokens, int window, int max_windows,
                                      std::optional<TokenId> bos) {
  const size_t n = static_cast<size_t>(window);
  size_t n_windows = tokens.size() / n;
  if (n_windows == 0) {
    return fail(ErrorCode::invalid_input,
                "the text has {} tokens, fewer than one window of {}; use a longer text or a smaller window with -c",
                tokens.size(), window);
  }
  if (max_windows > 0) n_windows = std::min(n_windows, static_cast<size_t>(max_windows));
  tokens.resize(n_windows * n);
  if (bos) {
    for (size_t w = 0; w < n_windows; ++w) tokens[w * n] = *bos;
  }
  return WindowedText{window, std::move(tokens)};
}

Result<TextScores> score_text(ModelRunner& runner, const WindowedText& text, const ScoreOptions& options) {
  TextScores scores;
  Scorer scorer(options, scores);
  for (int w = 0; w < text.n_windows(); ++w) {
    if (options.cancelled && options.cancelled()) return fail(ErrorCode::cancelled, "interrupted");
    if (Status scored = score_window(runner, text.at(w), scorer); !scored.ok()) return scored.error();
    if (options.progress) options.progress(w + 1, scores);
  }
  return scores;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double error_of_mean(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values), n = static_cast<double>(values.size());
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / (n - 1) / n);
}

double quantile(std::span<const double> values, double fraction) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

}  // namespace zinc
