// What the host writes into one upload per step: counts, then arrays of the bucket's largest sizes, then those columns
// of the page tables that the step reads or writes. The kernels read it as ints.
#pragma once

#include "backend/gpu/attention_units.h"
#include "backend/gpu/cache.h"
#include "backend/plan.h"

namespace zinc::gpu {

struct UploadOptions {
  bool has_logit_rows = false;  // StepInputs::logit_rows, which only some backends read on the device
  int attention_blocks = 0;     // blocks of split-KV attention that fill the device; 0: no attention units
};

// Offsets of the arrays, in ints.
struct UploadLayout {
  size_t tokens, positions, seq_of_token, seq_begin, slots, row_slots, output_rows, logit_rows, sampling, first_column,
      page_tables, n_ints;
  size_t rope_scalings;  // per token; 0: the bucket has one RoPE scaling
  struct GroupUnits {    // attention units of a page group
    AttentionUnitLimits limits;
    size_t prefill_tokens, n_units, units;  // per token the next that is not a split row; the number of units; units
  };
  std::vector<GroupUnits> attention;  // per page group, if the backend has attention units
  UploadLayout(const Bucket& bucket, const Cache& cache, const UploadOptions& options);
};

// Writes everything but what only some backends have; returns the ints used. `max_seqs`: of the bucket.
size_t fill_upload(const StepInputs& in, const UploadLayout& layout, const Cache& cache, int max_seqs, int* to);

}  // namespace zinc::gpu
