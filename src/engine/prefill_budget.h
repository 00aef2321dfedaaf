// Chunked prefill: the prompt-token budget of a step that also decodes. With short prompts the step takes at most
// 100 ms, so that a burst of them is prefilled at nearly full speed. With a long prompt it takes at most
// max_decode_slowdown times as long as a decode-only step, so that streams do not pause for all of it; where a step of
// few tokens costs nearly as much as one of many, as on a GPU, the chunks are longer than that: prompt tokens take at
// most twice as long as in steps without decode rows. Learns from observed step times: the time of a decode-only step,
// and the cost of a prompt token by its depth. Requests a decode-only step if none was measured yet or the last one is
// too long ago. Plain numbers in and out; no clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace zinc {

struct StepLoad {
  int n_decode = 0;       // decode rows
  int n_prefill = 0;      // prompt tokens
  double depth_sum = 0;   // sum of the prompt tokens' positions
  double read_depth = 0;  // sum of the chunks' first positions: KV cache read by the prefill
};

enum class PromptLength : uint8_t { short_prompt, long_prompt };

class PrefillBudget {
 public:
  // max_decode_slowdown: longest step, as a multiple of a decode-only step, unless prefill would run at less than half
  // its speed. REQUIRES: max_decode_slowdown > 1.
  PrefillBudget(int max_tokens, double max_decode_slowdown)
      : max_tokens_(max_tokens), max_decode_slowdown_(max_decode_slowdown) {}

  // A short prompt takes few steps: it has few tokens, or one step of the longest duration is enough for all of them.
  PromptLength length_of(int n_prompt) const;
  // Prompt tokens for the next step, the first one at position `depth`. 0: run a decode-only step.
  int next_prefill_tokens(int n_decode, int depth, PromptLength length) const;
  void observe(const StepLoad& load, double seconds);

 private:
  struct Cost {
    double per_token = 0, per_depth = 0;  // seconds
  };
  // Decode-only steps of about this many rows.
  struct DecodeOnlyStep {
    double n_rows = 0, seconds = 0;  // 0: not measured
  };
  // Sums of a weighted least-squares fit: seconds = per_token * n + per_depth * d.
  struct Fit {
    void add(double depth, double seconds, double weight);  // of one token
    std::optional<Cost> cost() const;                       // none: nothing was added

    double nn = 0, nd = 0, dd = 0, ns = 0, ds = 0;
    double max_depth = 0;  // at which cost() is known to be right
  };
  double decode_only_step_s(int n_decode) const;  // 0: not measured
  // The same, or else a step of fewer rows if the difference is small, however the time grows with the rows.
  double rough_decode_only_step_s(int n_decode) const;
  void update_min_chunk(int n_prefill, double depth, double seconds_per_token);

  int max_tokens_;
  double max_decode_slowdown_;
  std::array<DecodeOnlyStep, 16> decode_only_{};  // by log2 of the number of rows
  double recent_chunk_ = 0;                       // prompt tokens of the largest of the last steps
  int n_since_decode_only_ = 0;                   // mixed steps since the last decode-only step
  Fit all_;                                       // of all steps with prompt tokens
  Fit prefill_only_;                              // of long chunks in steps without decode rows
  int min_chunk_ = 0;                             // prompt tokens of a mixed step, at least
  double shorter_chunk_s_ = 0;  // per token, of the chunk from which min_chunk_ was doubled; 0: it was not
};

}  // namespace zinc
