// How well a model predicts a text, and how far its predictions are from another's. The text is cut into windows, each
// read from an empty cache; the second half of each is scored, where every token has at least half a window before it.
// The first token of a window gives way to begin-of-text where the vocabulary asks for that, as llama-perplexity has
// it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/prediction_file.h"
#include "engine/sequence.h"

namespace zinc {

inline constexpr int kMinWindow = 3;  // of which one token is scored

// The tokens of all whole windows, begin-of-text in place.
struct WindowedText {
  int window = 0;
  std::vector<TokenId> tokens;  // [n_windows, window]

  int n_windows() const { return static_cast<int>(tokens.size()) / window; }
  std::span<const TokenId> at(int index) const;
};
// max_windows 0: all. REQUIRES: window >= kMinWindow. Fails if there is not one whole window.
Result<WindowedText> cut_into_windows(std::vector<TokenId> tokens, int window, int max_windows,
                                      std::optional<TokenId> bos);

// Numbers of all scored tokens.
struct TextScores {
  std::vector<double> nll;  // -ln p(token | those before it in the window)

  // Where there is a baseline P, for the model's own Q:
  std::vector<double> divergence;    // KL(P || Q) in nats
  std::vector<double> baseline_nll;  // by P
  int n_same_top = 0;                // tokens where both expect the same token most
};

struct ScoreOptions {
  PredictionWriter* save = nullptr;          // takes every prediction
  const PredictionFile* baseline = nullptr;  // made from the same windows
  std::function<void(int n_windows_done, const TextScores&)> progress = {};
};
// REQUIRES: the tokens are in the vocabulary; a context of at least a window.
Result<TextScores> score_text(Sequence& sequence, const WindowedText& text, const ScoreOptions& options);

double mean_of(std::span<const double> values);                    // REQUIRES: not empty
double error_of_mean(std::span<const double> values);              // standard error; 0 for a single value
double quantile(std::span<const double> values, double fraction);  // the smallest that so many do not exceed

}  // namespace zinc
