// Sampling parameters of a request, as plain data. Every default is neutral (the step is off), so that a dump of a
// request shows all that happens; only the temperature has a non-neutral default, 1 as in OpenAI's API. Order of
// application: logit_bias, penalties, DRY, top_k, top_p, min_p, temperature, sampling (sample/sampler.h). Typical-p and
// XTC are not supported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace zinc {

constexpr float kGreedyTemperature = 1e-4f;  // at or below: greedy, the lowest id on ties, no random number
constexpr float kMaxTemperature = 2.0f;      // OpenAI's range
constexpr float kMaxCountPenalty = 2.0f;     // OpenAI's range for frequency and presence, both signs
constexpr size_t kMaxLogitBiases = 1024;     // each sampled token costs time proportional to their number
constexpr float kMaxLogitBias = 100.0f;      // OpenAI's range, both signs
constexpr int32_t kWholeHistory = -1;        // as a window: all tokens so far, including the prompt
constexpr int32_t kMaxDryMatch = 50;    // longer repetitions count as this long: the penalty is overwhelming already
constexpr size_t kMaxDryBreakers = 64;  // each is searched in every token of the vocabulary
constexpr size_t kMaxDryBreakerBytes = 64;

struct LogitBias {
  TokenId token;
  float bias;  // added to the token's logit; several for one token add up
};

struct SamplingParams {
  float temperature = 1.0f;
  int32_t top_k = 0;   // keep the k most likely; 0: off
  float top_p = 1.0f;  // keep the fewest most likely tokens that together have this probability; 1: off
  float min_p = 0.0f;  // keep tokens with at least this fraction of the most likely token's probability; 0: off

  float repeat_penalty = 1.0f;     // divides a seen token's positive logit, multiplies a negative one; 1: off
  float frequency_penalty = 0.0f;  // subtracted once per occurrence; 0: off
  float presence_penalty = 0.0f;   // subtracted once if the token occurs at all; 0: off
  int32_t repeat_last_n = 64;      // tokens of history that these three use; 0: none, kWholeHistory: all

  float dry_multiplier = 0.0f;         // 0: DRY is off
  float dry_base = 1.75f;              // a match of n tokens costs multiplier * base^(n - allowed_length)
  int32_t dry_allowed_length = 2;      // shorter matches cost nothing
  int32_t dry_last_n = kWholeHistory;  // tokens of history searched; 0: none
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // sequence breakers: no match contains them

  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;  // a request without a seed gets a random one (sample/rng.h), which is reported
};

// Parameters of sampling that needs only the logits of its row: a device can do it (StepInputs::sampling).
struct DeviceSampling {
  float temperature = 0;  // at most kGreedyTemperature: greedy
  int32_t top_k = 0;
  float top_p = 1.0f, min_p = 0.0f;
  double uniform = 0;  // uniform random number in [0, 1): selects the token by inverse CDF, in order of ids
};

// Checks that every value is within its range and every biased token exists; the message names the field, its range and
// the value. Any sampler accepts validated parameters.
Status validate(const SamplingParams& params, int32_t n_vocab);

}  // namespace zinc
