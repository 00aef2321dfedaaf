// Chooses the next token from its logits, on the CPU: the truth that Op::sample kernels are tested against, and the
// path for what stays on the CPU. Order: logit_bias, penalties, DRY, what is allowed, top-k, top-p, min-p, temperature,
// draw.
// The result is a function of the arguments alone. A Sampler owns scratch only: one per thread serves any number of
// requests, and it allocates nothing once it has seen its vocabulary size and history length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "graph/sampling_params.h"
#include "sample/candidates.h"
#include "sample/penalties.h"
#include "sample/token_set.h"
#include "sample/vocab_scan.h"

namespace zinc {

// Which token is being drawn, of which sequence.
struct Draw {
  std::span<const TokenId> history = {};   // prompt and generated tokens so far; ids outside the vocabulary are ignored
  uint64_t position = 0;                   // of the new token in its sequence
  uint64_t stream = 0;                     // tells the choices of one request apart when it asks for several
  const TokenSet* dry_breakers = nullptr;  // tokens_containing(params.dry_breakers); nullptr: none
  const TokenSet* allowed = nullptr;       // no other token is picked; nullptr: all are allowed
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // natural; -infinity where the model rules the token out
};

struct Logprobs {
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;  // most likely first
};

// The same choice as one that a device can make, given the same logits; nullopt: it needs the history or a bias.
std::optional<TokenDraw> device_draw(const SamplingParams& params, uint64_t position, uint64_t stream);
// What is wrong where no logit can be chosen.
Error no_choice(uint64_t position, size_t n_vocab);

class Sampler {
 public:
  // The next token. `logits` (one per vocabulary entry) are changed while this runs and as they were when it returns.
  // NaN and -infinity are never picked; an error where there is nothing else.
  // REQUIRES: validate(params, logits.size()) is ok.
  Result<TokenId> pick(std::span<float> logits, const SamplingParams& params, const Draw& draw);

  // What the model itself thought of `chosen` and of its `n_top` most likely tokens: log-softmax of the logits without
  // penalties, cuts or temperature. Costs a pass of its own. REQUIRES: 0 <= chosen < logits.size().
  void logprobs(std::span<const float> logits, TokenId chosen, int n_top, Logprobs& out);

 private:
  std::span<const float> only(const TokenSet& allowed, std::span<const float> logits);
  TokenId pick_from_cut(size_t n_vocab, const SamplingParams& params, double share);
  void gather_top_p(size_t n_vocab, const SamplingParams& params, float min_p_logit);

  VocabScan scan_;
  Candidates candidates_;
  PenaltyScratch penalty_scratch_;
  std::vector<float> allowed_logits_;
};

}  // namespace zinc
