#include "sample/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "sample/rng.h"

namespace zinc {
namespace {

constexpr float kNearMargin = 9.0f;  // e^-9: a ten-thousandth of the most likely token

bool top_k_cuts(const SamplingParams& p, size_t n_vocab) {
  return p.top_k > 0 && static_cast<size_t>(p.top_k) < n_vocab;
}

// The lowest logit that min-p keeps.
float min_p_threshold(const SamplingParams& p, float max) {
  return p.min_p > 0.0f ? std::max(max + std::log(p.min_p), -FLT_MAX) : -FLT_MAX;
}

// Tokens with less than (1 - p) / n_vocab of the mass have less than 1 - p of it together, so the top-p tokens are all
// at or above this logit. Halved as a margin for floating-point error.
float top_p_bound(const SamplingParams& p, float max, double mass, size_t n_vocab) {
  const double lightest = 0.5 * (1.0 - double{p.top_p}) * mass / static_cast<double>(n_vocab);
  return std::max(max + static_cast<float>(std::log(lightest)), -FLT_MAX);
}

}  // namespace

std::optional<DeviceSampling> device_sampling(const SamplingParams& params, uint64_t position, uint64_t stream) {
  if (changes_logits(params)) return std::nullopt;
  if (params.temperature <= kGreedyTemperature) return DeviceSampling{};
  return DeviceSampling{.temperature = params.temperature,
                        .top_k = params.top_k,
                        .top_p = params.top_p,
                        .min_p = params.min_p,
                        .uniform = Rng(params.seed, stream).uniform(position)};
}

Error no_finite_logit(uint64_t position, size_t n_vocab) {
  return fail(
      ErrorCode::device_lost,  // not the request's fault: biases are finite
      "no token can be sampled at position {}: all {} logits are NaN or -infinity; the model file is damaged or the "
      "device computes wrong results",
      position, n_vocab);
}

Result<TokenId> Sampler::sample(std::span<float> logits, const SamplingParams& params, const SamplingContext& context) {
  static const TokenSet kNoBreakers;
  const PenalizedLogits penalized(logits, params, context.history,
                                  context.dry_breakers != nullptr ? *context.dry_breakers : kNoBreakers,
                                  penalty_scratch_);
  scan_.read(context.allowed != nullptr ? only(*context.allowed, logits) : logits);
  if (scan_.empty()) return no_finite_logit(context.position, logits.size());
  if (params.temperature <= kGreedyTemperature) return scan_.argmax();

  const double uniform = Rng(params.seed, context.stream).uniform(context.position);
  const bool cuts = top_k_cuts(params, logits.size()) || params.top_p < 1.0f || params.min_p > 0.0f;
  if (cuts) return sample_truncated(logits.size(), params, uniform);
  scan_.mass(params.temperature);
  return scan_.token_at(uniform);
}

// The logits of the allowed tokens; all others are masked with -infinity.
std::span<const float> Sampler::only(const TokenSet& allowed, std::span<const float> logits) {
  constexpr float kAbsent = -std::numeric_limits<float>::infinity();
  constexpr size_t kWord = 64;
  const std::span<const uint64_t> words = allowed.words();
  allowed_logits_.resize(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kWord) {
    const size_t n = std::min(kWord, logits.size() - begin);
    const uint64_t word = begin / kWord < words.size() ? words[begin / kWord] : 0;
    for (size_t i = 0; i < n; ++i) allowed_logits_[begin + i] = (word >> i & 1) != 0 ? logits[begin + i] : kAbsent;
  }
  return allowed_logits_;
}

TokenId Sampler::sample_truncated(size_t n_vocab, const SamplingParams& params, double uniform) {
  const float min_p_logit = min_p_threshold(params, scan_.max());
  if (top_k_cuts(params, n_vocab)) {
    const auto k = static_cast<size_t>(params.top_k);
    candidates_.gather(scan_, n_vocab, scan_.top_k_bound(k));
    candidates_.keep_top_k(k);
    if (params.top_p < 1.0f) candidates_.keep_top_p(params.top_p, candidates_.mass());
  } else if (params.top_p < 1.0f) {
    gather_top_p(n_vocab, params, min_p_logit);
  } else {
    candidates_.gather(scan_, n_vocab, min_p_logit);
  }
  candidates_.keep_above(min_p_logit);
  return candidates_.token_at(params.temperature, uniform);
}

// Top-p over the whole vocabulary. The tokens near the most likely one are nearly always enough; the second pass takes
// all that could matter. Tokens that min-p drops afterwards need not be gathered.
void Sampler::gather_top_p(size_t n_vocab, const SamplingParams& params, float min_p_logit) {
  const double mass = scan_.mass(1.0f);
  const float near_logit = scan_.max() - kNearMargin;
  const float min_logit = std::max(min_p_logit, top_p_bound(params, scan_.max(), mass, n_vocab));
  candidates_.gather(scan_, n_vocab, std::max(near_logit, min_logit));
  if (min_logit < near_logit && candidates_.mass() < params.top_p * mass) candidates_.gather(scan_, n_vocab, min_logit);
  candidates_.keep_top_p(params.top_p, mass);
}

void Sampler::logprobs(std::span<const float> logits, TokenId chosen, int n_top, Logprobs& out) {
  constexpr float kRuledOut = -std::numeric_limits<float>::infinity();
  out.chosen = kRuledOut;
  out.top.clear();
  scan_.read(logits);
  if (scan_.empty()) return;

  const double log_mass = std::log(scan_.mass(1.0f));
  const auto logprob = [&](float logit) {
    return static_cast<float>(std::min(double{logit}, double{FLT_MAX}) - double{scan_.max()} - log_mass);
  };
  const float logit = logits[static_cast<size_t>(chosen)];
  if (!std::isnan(logit)) out.chosen = logprob(logit);
  if (n_top <= 0) return;

  const auto k = static_cast<size_t>(n_top);
  candidates_.gather(scan_, logits.size(), scan_.top_k_bound(k));
  candidates_.keep_top_k(k);
  for (const Candidate& c : candidates_.list()) out.top.push_back({c.token, logprob(c.logit)});
  std::sort(out.top.begin(), out.top.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
  });
}

}  // namespace zinc
