#include "sample/penalties.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "sample/dry.h"

namespace zinc {
namespace {

std::span<const TokenId> newest(std::span<const TokenId> history, int32_t n) {
  if (n == kWholeHistory) return history;
  return history.last(std::min(history.size(), static_cast<size_t>(n)));
}

bool counts_matter(const SamplingParams& p) {
  return p.repeat_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

}  // namespace

bool changes_logits(const SamplingParams& params) {
  return !params.logit_bias.empty() || counts_matter(params) || params.dry_multiplier > 0.0f;
}

PenalizedLogits::PenalizedLogits(std::span<float> logits, const SamplingParams& params,
                                 std::span<const TokenId> history, const TokenSet& dry_breakers,
                                 PenaltyScratch& scratch)
    : logits_(logits), scratch_(scratch) {
  scratch_.saved.clear();
  for (const LogitBias& b : params.logit_bias) set(b.token, logits_[static_cast<size_t>(b.token)] + b.bias);
  if (counts_matter(params)) apply_counts(params, newest(history, params.repeat_last_n));
  if (params.dry_multiplier > 0.0f) apply_dry(params, newest(history, params.dry_last_n), dry_breakers);
}

PenalizedLogits::~PenalizedLogits() {
  for (auto it = scratch_.saved.rbegin(); it != scratch_.saved.rend(); ++it) {
    logits_[static_cast<size_t>(it->token)] = it->logit;
  }
}

// A finite logit stays finite: no request can rule out a token that the model allows, or all tokens.
void PenalizedLogits::set(TokenId token, float logit) {
  float& slot = logits_[static_cast<size_t>(token)];
  if (!std::isfinite(slot)) return;
  scratch_.saved.push_back({token, slot});
  slot = std::clamp(logit, -FLT_MAX, FLT_MAX);
}

void PenalizedLogits::apply_counts(const SamplingParams& params, std::span<const TokenId> window) {
  TokenCounts& counts = scratch_.counts;
  counts.reset(logits_.size());
  for (const TokenId token : window) counts.increment(token);
  for (const TokenId token : counts.touched()) {
    const float logit = logits_[static_cast<size_t>(token)];
    const float scaled = logit > 0.0f ? logit / params.repeat_penalty : logit * params.repeat_penalty;
    const auto n = static_cast<float>(counts[token]);
    set(token, scaled - n * params.frequency_penalty - params.presence_penalty);
  }
}

void PenalizedLogits::apply_dry(const SamplingParams& params, std::span<const TokenId> window,
                                const TokenSet& breakers) {
  TokenCounts& longest = scratch_.counts;
  longest.reset(logits_.size());
  find_repetitions(window, params.dry_allowed_length, breakers, longest);
  for (const TokenId token : longest.touched()) {
    set(token, logits_[static_cast<size_t>(token)] - dry_penalty(params, longest[token]));
  }
}

}  // namespace zinc
