// Perplexity of a text and KL divergence from a baseline model. The text is cut into windows, each evaluated from an
// empty cache; the second half of each window is scored, so that every scored token has at least half a window of
// context. If the vocabulary asks for it, the first token of a window is replaced by BOS, as llama-perplexity does.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/model_runner.h"
#include "engine/prediction_file.h"

namespace zinc {

inline constexpr int kMinWindow = 3;  // one token is scored

// The tokens of all whole windows, with BOS inserted.
struct WindowedText {
  int window = 0;
  std::vector<TokenId> tokens;  // [n_windows, window]

  int n_windows() const { return static_cast<int>(tokens.size()) / window; }
  std::span<const TokenId> at(int index) const;
};
// max_windows 0: all. REQUIRES: window >= kMinWindow. Fails if the text is shorter than one window.
Result<WindowedText> cut_into_windows(std::vector<TokenId> tokens, int window, int max_windows,
                                      std::optional<TokenId> bos);

// Scores of all scored tokens.
struct TextScores {
  std::vector<double> nll;  // -ln p(token | those before it in the window)

  // With a baseline P, for the model's own distribution Q:
  std::vector<double> divergence;    // KL(P || Q) in nats
  std::vector<double> baseline_nll;  // by P
  int n_same_top = 0;                // tokens where both have the same most likely token
};

struct ScoreOptions {
  PredictionWriter* save = nullptr;          // receives every prediction
  const PredictionFile* baseline = nullptr;  // computed from the same windows
  std::function<void(int n_windows_done, const TextScores&)> progress = {};
  std::function<bool()> cancelled = {};  // asked before each window
};
// REQUIRES: the tokens are in the vocabulary; a context of at least a window.
Result<TextScores> score_text(ModelRunner& runner, const WindowedText& text, const ScoreOptions& options);

double mean_of(std::span<const double> values);        // REQUIRES: not empty
double error_of_mean(std::span<const double> values);  // standard error; 0 for a single value
double quantile(std::span<const double> values,
                double fraction);  // the smallest value with at least this fraction of the values at or below it

}  // namespace zinc
