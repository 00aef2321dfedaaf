// A model's predictions for a text, saved as a baseline for other models: for each scored token the log-probabilities
// of the whole vocabulary in 16 bits each, with a scale per token, and the tokens themselves. Little-endian; header,
// tokens, rows. Log-probabilities more than 60 below the largest are clamped. A file is written atomically.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/token_id.h"

namespace zinc {

// Tokens of the second half of a window that have a successor in it.
constexpr int scored_tokens(int window) { return window - window / 2 - 1; }

// The prediction after one token.
struct Prediction {
  TokenId top = 0;                     // the most likely token
  float target_log_prob = 0;           // of the actual next token
  std::vector<double> log_probs = {};  // of every token; quantized, but they sum to 1
};

class PredictionWriter {
 public:
  static Result<PredictionWriter> create(const std::filesystem::path& path, int n_vocab, int window,
                                         std::span<const TokenId> tokens);
  // REQUIRES: n_vocab values, finite or -infinity, at least one finite; log_sum is log_sum_exp(logits).
  Status add(std::span<const float> logits, double log_sum, TokenId target);
  Status commit() { return file_.commit(); }

 private:
  PredictionWriter(AtomicFile file, int n_vocab) : file_(std::move(file)), quants_(static_cast<size_t>(n_vocab)) {}
  AtomicFile file_;
  std::vector<uint16_t> quants_;
};

class PredictionFile {
 public:
  static Result<PredictionFile> open(const std::filesystem::path& path);

  int n_vocab() const { return n_vocab_; }
  int window() const { return window_; }
  int n_windows() const { return n_windows_; }
  std::vector<TokenId> tokens() const;  // [n_windows, window]
  // REQUIRES: 0 <= index < n_windows * scored_tokens(window). Reuses `out`.
  void read(size_t index, Prediction& out) const;

 private:
  explicit PredictionFile(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  int n_vocab_ = 0, window_ = 0, n_windows_ = 0;
};

double log_sum_exp(std::span<const float> values);  // NaN if one of them is NaN or all are -infinity

}  // namespace zinc
