// Divides a number of bytes into KV pages and state slots. Plain arithmetic before anything is allocated: a
// configuration that does not fit is rejected here, with the numbers.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "base/result.h"

namespace zinc {

constexpr int pages_of(int n_tokens) { return n_tokens / kPageTokens + (n_tokens % kPageTokens > 0 ? 1 : 0); }
// Pages of a windowed group that a sequence holds at most: the windows of the tokens of a step and of the one before
// them, with chunks of up to max_chunk_tokens tokens per step.
int window_pages(int window, int max_chunk_tokens, int max_length);

struct CacheRequirements {
  int max_sequences = 1;
  int context = 0;                  // positions of one sequence
  int longest_context = 0;          // of the model: an error proposes no larger one; 0: unknown
  bool may_shrink_context = false;  // to the largest that fits
  int n_full_contexts = 1;          // sequences of full context length that must fit at the same time, at least
  int max_chunk_tokens = 1;         // tokens of one sequence in one step
  int checkpoint_interval = 2048;   // tokens between recurrent-state checkpoints
  // Slots for the recurrent states after drafted tokens: as many as the second, but above the first not more bytes than
  // the pages have.
  int min_draft_slots = 0, max_draft_slots = 0;
  size_t max_bytes = 0;
  size_t max_tokens = 0;  // positions of all sequences and the prefix cache together; 0: as the bytes allow
};

struct CachePlan {
  CacheSizes sizes;
  int n_draft_slots = 0;  // of the slots in sizes
  int context = 0;
  size_t n_bytes = 0;
};

// REQUIRES: max_sequences >= n_full_contexts.
Result<CachePlan> plan_cache(std::span<const LayerCache> layers, const Format& kv_format,
                             const CacheRequirements& requirements);

}  // namespace zinc
