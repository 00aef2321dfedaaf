// Samples the next token on the CPU: the reference for Op::sample kernels, and the path for requests that the device
// cannot sample. Order: logit_bias, penalties, DRY, allowed tokens, top-k, top-p, min-p, temperature, sampling. The
// result is a function of the arguments only. A Sampler owns scratch memory only: one per thread serves any number of
// requests, and it does not allocate once it has seen its vocabulary size and history length.
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

// The token to sample, and its sequence.
struct SamplingContext {
  std::span<const TokenId> history = {};   // prompt and output so far; ids outside the vocabulary are ignored
  uint64_t position = 0;                   // of the new token in its sequence
  uint64_t stream = 0;                     // separates the outputs of one request (n > 1)
  const TokenSet* dry_breakers = nullptr;  // tokens_containing(params.dry_breakers); nullptr: none
  const TokenSet* allowed = nullptr;       // no other token is sampled; nullptr: all are allowed
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // natural logarithm; -infinity if the model rules the token out
};

struct Logprobs {
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;  // most likely first
};

// The same sampling as parameters for a device, for the same logits; nullopt: it needs the history or a bias.
std::optional<DeviceSampling> device_sampling(const SamplingParams& params, uint64_t position, uint64_t stream);
// The error if no logit is finite.
Error no_finite_logit(uint64_t position, size_t n_vocab);

class Sampler {
 public:
  // The next token. `logits` (one per vocabulary entry) are changed during the call and restored before it returns. NaN
  // and -infinity are never sampled; an error if there is nothing else. REQUIRES: validate(params, logits.size()) is
  // ok.
  Result<TokenId> sample(std::span<float> logits, const SamplingParams& params, const SamplingContext& context);

  // The model's own log-probabilities of `chosen` and of its `n_top` most likely tokens: log-softmax of the logits
  // without penalties, truncation or temperature. Costs a separate pass. REQUIRES: 0 <= chosen < logits.size().
  void logprobs(std::span<const float> logits, TokenId chosen, int n_top, Logprobs& out);

 private:
  std::span<const float> only(const TokenSet& allowed, std::span<const float> logits);
  TokenId sample_truncated(size_t n_vocab, const SamplingParams& params, double uniform);
  void gather_top_p(size_t n_vocab, const SamplingParams& params, float min_p_logit);

  VocabScan scan_;
  Candidates candidates_;
  PenaltyScratch penalty_scratch_;
  std::vector<float> allowed_logits_;
};

}  // namespace zinc
