// DRY ("don't repeat yourself"): penalizes a token that would extend a repetition, more for longer repetitions. A token
// that followed an earlier occurrence of the last n tokens of the history costs multiplier * base^(n - allowed_length)
// when n >= allowed_length. A repetition never contains a breaker token, so that chat templates and lists may repeat.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_id.h"
#include "graph/sampling_params.h"
#include "sample/token_counts.h"
#include "sample/token_set.h"

namespace zinc {

// For every token that followed an earlier occurrence of the history's suffix: the length of the longest such suffix,
// if it has at least `allowed_length` tokens, at most kMaxDryMatch. Breaker tokens are never in `longest`. Linear in
// the history, for any content.
void find_repetitions(std::span<const TokenId> history, int32_t allowed_length, const TokenSet& breakers,
                      TokenCounts& longest);

float dry_penalty(const SamplingParams& params, int32_t n_match);

}  // namespace zinc
