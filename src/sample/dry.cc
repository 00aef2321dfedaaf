#include "sample/dry.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>

namespace zinc {
namespace {

// Tokens of the history after its last breaker, at most kMaxDryMatch.
int32_t breaker_free_tail(std::span<const TokenId> history, const TokenSet& breakers) {
  int32_t n = 0;
  for (auto it = history.rbegin(); it != history.rend() && n < kMaxDryMatch && !breakers.contains(*it); ++it) ++n;
  return n;
}

}  // namespace

// The Z algorithm over the reversed history (back(0) is the newest token): match[k] is the length of the common suffix
// of the history and the history without its last k tokens. [left, right) is the matching range that reaches furthest
// back; inside it the length is known from match[k - left] unless it touches the range's end. With lengths capped at
// `limit` a range is never longer than `limit`, so only match[0, limit) is ever read again.
void find_repetitions(std::span<const TokenId> history, int32_t allowed_length, const TokenSet& breakers,
                      TokenCounts& longest) {
  const int32_t limit = breaker_free_tail(history, breakers);
  if (limit == 0 || limit < allowed_length) return;

  const auto n = static_cast<ptrdiff_t>(history.size());
  const TokenId* newest = history.data() + n - 1;
  const auto back = [newest](ptrdiff_t i) { return newest[-i]; };
  std::array<int32_t, kMaxDryMatch> match{};
  ptrdiff_t left = 0, right = 0;
  for (ptrdiff_t k = 1; k < n; ++k) {
    if (k >= right) {
      while (k < n && back(k) != back(0)) ++k;
      if (k == n) break;
    }
    ptrdiff_t length = k < right ? std::min<ptrdiff_t>(match[static_cast<size_t>(k - left)], right - k) : 1;
    if (k + length >= right) {
      while (length < limit && k + length < n && back(k + length) == back(length)) ++length;
      left = k;
      right = k + length;
    }
    if (k < limit) match[static_cast<size_t>(k)] = static_cast<int32_t>(length);
    if (length >= allowed_length && !breakers.contains(back(k - 1))) {
      longest.raise_to(back(k - 1), static_cast<int32_t>(length));
    }
  }
}

float dry_penalty(const SamplingParams& params, int32_t n_match) {
  const double exact = params.dry_multiplier * std::pow(params.dry_base, n_match - params.dry_allowed_length);
  return static_cast<float>(std::min(exact, double{FLT_MAX}));
}

}  // namespace zinc
