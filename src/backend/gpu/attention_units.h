// Split-KV attention of many sequences. Each token of a sequence with few tokens in the step is a row. The KV chunks of
// all rows are one flat list, cut into units of about equal size, so that the blocks of a launch have equal work
// whatever the mix of lengths. Chunks of a row are merged in order, in one unit or by the block that finishes the row's
// last unit: the results do not depend on the cut.
#pragma once

#include <span>

#include "backend/gpu/cache.h"
#include "backend/gpu/params/attention_units.h"
#include "backend/plan.h"

namespace zinc::gpu {

// A sequence with up to this many tokens in a step has split rows; a longer one has query tiles of many tokens.
inline constexpr int kMaxSplitTokens = 8;
// Rows of the longest context whose chunks all have a partial result in memory; further rows are one unit each.
inline constexpr int kMaxSplitRows = 16;

// Sizes of a page group's units, fixed for a step class.
struct AttentionUnitLimits {
  int max_rows = 0;      // split rows of a step
  int target_units = 0;  // units that fill the device
  int max_units = 0;     // of a step: a row more or less than the target
  int max_partials = 0;  // partial results per head, of rows with several units

  // `n_blocks`: blocks that fill the device, `n_chunks`: KV chunks of a row, at most.
  AttentionUnitLimits(const Bucket& bucket, int kv_heads, int n_blocks, int n_chunks);
};

// Writes the units of the step, without their page_row, and for each token the first one from it on that is not a split
// row; returns the number of units.
// REQUIRES: units.size() == limits.max_units, prefill_tokens.size() == in.tokens.size().
int cut_attention_units(const StepInputs& in, int window, const AttentionUnitLimits& limits,
                        std::span<AttentionUnit> units, std::span<int> prefill_tokens);

}  // namespace zinc::gpu
