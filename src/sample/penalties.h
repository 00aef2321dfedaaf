// The logits processors that run before truncation: logit_bias, then the three penalties on tokens of the history, then
// DRY. They change only the tokens they name, and the destructor of PenalizedLogits restores all logits. Scratch memory
// is reused: no allocation once warm. One thread.
#pragma once

#include <span>
#include <vector>

#include "base/token_id.h"
#include "graph/sampling_params.h"
#include "sample/token_counts.h"
#include "sample/token_set.h"

namespace zinc {

struct PenaltyScratch {
  struct Saved {
    TokenId token;
    float logit;
  };
  TokenCounts counts;
  std::vector<Saved> saved;
};

// Whether bias, penalties or DRY can change a logit: sampling then needs more than the model's logits.
bool changes_logits(const SamplingParams& params);

class PenalizedLogits {
 public:
  // `logits` hold the changed values during this object's lifetime. REQUIRES: validate(params, logits.size()) is ok.
  PenalizedLogits(std::span<float> logits, const SamplingParams& params, std::span<const TokenId> history,
                  const TokenSet& dry_breakers, PenaltyScratch& scratch);
  ~PenalizedLogits();
  PenalizedLogits(const PenalizedLogits&) = delete;
  PenalizedLogits& operator=(const PenalizedLogits&) = delete;

 private:
  void set(TokenId token, float logit);
  void apply_counts(const SamplingParams& params, std::span<const TokenId> window);
  void apply_dry(const SamplingParams& params, std::span<const TokenId> window, const TokenSet& breakers);

  std::span<float> logits_;
  PenaltyScratch& scratch_;
};

}  // namespace zinc
