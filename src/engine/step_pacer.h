// How many prompt tokens a step may read while other requests are being answered, so that none of them waits longer
// than a few of its own steps. Learns from the times it is told: what a step of only answers takes, and what prompt
// tokens cost beside it, by their depth. Asks for a step of only answers where it knows none or has seen none for long.
// Plain numbers in and out; no clock.
#pragma once

#include <array>
#include <optional>

namespace zinc {

struct StepShape {
  int n_decode = 0;       // rows of answers
  int n_prefill = 0;      // prompt tokens
  double depth_sum = 0;   // of the prompt tokens' positions
  double read_depth = 0;  // of the positions where their runs begin: what is read of the cache
};

class StepPacer {
 public:
  // longest_gap: how many plain steps the step may last. REQUIRES: longest_gap > 1.
  StepPacer(int max_tokens, double longest_gap) : max_tokens_(max_tokens), longest_gap_(longest_gap) {}

  // Prompt tokens that the next step may read, the first of them at position `depth`. Where no prompt has more than a
  // few hundred tokens (`longest`) its few steps may be longer than the many of a long one. 0: a plain step is wanted.
  int allowance(int n_decode, int depth, int longest) const;
  void observe(const StepShape& shape, double seconds);

 private:
  struct Cost {
    double per_token = 0, per_depth = 0;  // seconds
  };
  // Steps of only answers, with about so many rows.
  struct Plain {
    double n_rows = 0, seconds = 0;  // 0: not seen
  };
  double plain_step_s(int n_decode) const;  // 0: not known
  std::optional<Cost> cost() const;

  int max_tokens_;
  double longest_gap_;
  std::array<Plain, 16> plain_{};  // by the logarithm of the number of rows
  int last_read_ = 0;              // prompt tokens of the last step that had both
  int n_since_plain_ = 0;          // steps that had both, since the last that had only answers
  // Sums of a weighted least-squares fit: seconds = per_token * n + per_depth * d.
  double nn_ = 0, nd_ = 0, dd_ = 0, ns_ = 0, ds_ = 0;
};

}  // namespace zinc
