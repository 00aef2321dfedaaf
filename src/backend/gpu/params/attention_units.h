// Units and rows of split-KV attention in the step's upload (gpu/attention_units.h).
#pragma once

namespace zinc::kernel {

struct AttentionUnit {
  int token, first_chunk, end_chunk;  // chunks first_chunk .. end_chunk - 1 of the token's row
};

// The partial results of a row: one of each chunk, or a single one that its only unit has merged.
struct AttentionRow {
  int first_partial, n_partials;  // n_partials 0: not a split row
  int prefill_token;              // the first from this token on that is not a split row
};

}  // namespace zinc::kernel
