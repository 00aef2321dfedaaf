// Units of split-KV attention in the step's upload (gpu/attention_units.h).
#pragma once

namespace zinc::kernel {

// Everything that a kernel needs to load the unit's keys and values, in 32 bytes at a multiple of 16.
struct AttentionUnit {
  int token, first_chunk, end_chunk;  // chunks first_chunk .. end_chunk - 1 of the token's row
  int n_units;                        // of the row
  int position;                       // of the token
  int n_cached;                       // positions of the sequence that earlier steps have written
  int page_row;                       // index in the upload of the page table entry of the sequence's position 0
  int first_partial;                  // of the row, if it has several units: one partial result per chunk
};

}  // namespace zinc::kernel
