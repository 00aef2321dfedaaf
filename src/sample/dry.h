// DRY ("don't repeat yourself"): a token that would lengthen a repetition is made less likely, more so the longer the
// repetition already is. A token that once followed the last n tokens of the history costs
// multiplier * base^(n - allowed_length) when n >= allowed_length. No counted repetition contains a breaker token, so
// that chat templates and lists repeat freely.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_id.h"
#include "graph/sampling_params.h"
#include "sample/token_counts.h"
#include "sample/token_set.h"

namespace zinc {

// For every token that followed an earlier occurrence of the history's end: the longest such end, where it has at least
// `allowed_length` tokens; longer ones than kMaxDryMatch count as that long. Breaker tokens are never in `longest`.
// Linear in the history, whatever its content.
void find_repetitions(std::span<const TokenId> history, int32_t allowed_length, const TokenSet& breakers,
                      TokenCounts& longest);

float dry_penalty(const SamplingParams& params, int32_t n_match);

}  // namespace zinc
