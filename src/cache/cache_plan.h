// How many pages and state slots a model's caches get out of a number of bytes. Plain arithmetic, before anything is
// allocated: what does not fit is refused here, with the numbers.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "base/result.h"

namespace zinc {

constexpr int pages_of(int n_tokens) { return n_tokens / kPageTokens + (n_tokens % kPageTokens > 0 ? 1 : 0); }
// Pages of a windowed group that a sequence holds at most at a time, feeding up to max_run tokens in one step.
int window_pages(int window, int max_run, int max_length);

struct CacheDemand {
  int max_sequences = 1;
  int context = 0;                  // positions of one sequence
  bool may_shrink_context = false;  // to what the bytes hold
  int n_whole_contexts = 1;         // sequences of the whole context that fit at once, at least
  int max_run = 1;                  // tokens of one sequence in one step
  int state_interval = 2048;        // tokens between recurrent states that are kept
  size_t max_bytes = 0;
  size_t max_tokens = 0;  // positions of all sequences and the prefix tree together; 0: as the bytes allow
};

struct CachePlan {
  CacheSizes sizes;
  int context = 0;
  size_t n_bytes = 0;
};

// REQUIRES: max_sequences >= n_whole_contexts.
Result<CachePlan> plan_cache(std::span<const LayerCache> layers, const Format& kv_format, const CacheDemand& demand);

}  // namespace zinc
