// Chunked prefill: the prompt-token budget of a step that also decodes, chosen so that the step takes at most
// max_decode_slowdown times as long as a decode-only step. Learns from observed step times: the time of a decode-only
// step, and the cost of a prompt token by its depth. Requests a decode-only step if none was measured yet or the last
// one is too long ago. Plain numbers in and out; no clock.
#pragma once

#include <array>
#include <optional>

namespace zinc {

struct StepLoad {
  int n_decode = 0;       // decode rows
  int n_prefill = 0;      // prompt tokens
  double depth_sum = 0;   // sum of the prompt tokens' positions
  double read_depth = 0;  // sum of the chunks' first positions: KV cache read by the prefill
};

class PrefillBudget {
 public:
  // max_decode_slowdown: longest step, as a multiple of a decode-only step. REQUIRES: max_decode_slowdown > 1.
  PrefillBudget(int max_tokens, double max_decode_slowdown)
      : max_tokens_(max_tokens), max_decode_slowdown_(max_decode_slowdown) {}

  // Prompt tokens for the next step, the first one at position `depth`. If the longest prompt is short, steps may be
  // longer: there are only a few. 0: run a decode-only step.
  int next_prefill_tokens(int n_decode, int depth, int longest_prompt) const;
  void observe(const StepLoad& load, double seconds);

 private:
  struct Cost {
    double per_token = 0, per_depth = 0;  // seconds
  };
  // Decode-only steps of about this many rows.
  struct DecodeOnlyStep {
    double n_rows = 0, seconds = 0;  // 0: not measured
  };
  double decode_only_step_s(int n_decode) const;  // 0: not measured
  std::optional<Cost> cost() const;

  int max_tokens_;
  double max_decode_slowdown_;
  std::array<DecodeOnlyStep, 16> decode_only_{};  // by log2 of the number of rows
  int last_prefill_ = 0;                          // prompt tokens of the last mixed step (prefill and decode)
  int n_since_decode_only_ = 0;                   // mixed steps since the last decode-only step
  // Sums of a weighted least-squares fit: seconds = per_token * n + per_depth * d.
  double nn_ = 0, nd_ = 0, dd_ = 0, ns_ = 0, ds_ = 0;
};

}  // namespace zinc
