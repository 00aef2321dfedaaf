// Inputs and outputs of one execution of a plan, as views of arrays owned by the caller.
//
// A step is a batch of S sequences. Each contributes one or more tokens: a prefill chunk, one token of decode, or a
// token and its drafted successors, of which the host then keeps some (verification); all may be in the same step. A
// sequence that starts at position 0 starts with a zero recurrent state.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_id.h"
#include "graph/cache_spec.h"
#include "graph/sampling_params.h"

namespace zinc {

// In StepInputs::tokens: the token sampled last for this sequence's slot. It stays on the device.
inline constexpr TokenId kFromDevice = -1;

inline constexpr int kMaxDraftTokens = 7;  // of one sequence in a step

// Page table of S sequences in one page group, row-major: position p of sequence s is in page
// entries[s * stride + p / kPageTokens].
struct PageTable {
  std::span<const PageId> entries;
  int stride = 0;
};

struct StepInputs {
  std::span<const TokenId> tokens;     // [T]
  std::span<const int32_t> positions;  // [T]; consecutive within a sequence
  std::span<const int32_t> seq_begin;  // [S+1]: sequence s owns tokens seq_begin[s] .. seq_begin[s+1]-1
  std::span<const int32_t> slots;      // [S]: the slot with its recurrent state and the last token
                                       // that was sampled (after its last output row)
  // [T]: the slot to which the recurrent state after this row is written, kNoSlot: to none. Empty: the state after the
  // last row of each sequence is written to slots[s]. Bits do not depend on it. REQUIRES: the last row of a sequence
  // has a slot; a sequence whose slots are not as in the empty case has at most 1 + kMaxDraftTokens rows; no slot
  // occurs twice or belongs to another sequence of the step.
  std::span<const int32_t> row_slots = {};
  // [S]: below Bucket::n_rope_scalings; empty: 0. The RoPE of a sequence that needs an extended context (graph/rope.h).
  // It must not change while the sequence has KV pages.
  std::span<const int32_t> rope_scalings = {};
  std::span<const PageTable> page_tables;         // one per page group, in the order of page_groups()
  std::span<const int32_t> output_rows;           // [R]: rows whose next token is sampled, ascending
  std::span<const DeviceSampling> sampling = {};  // [R]; empty: greedy (argmax).
                                                  // REQUIRES: BackendInfo::can_sample_on_device
  std::span<const int32_t> logit_rows;  // indices into the R rows whose logits are copied to the host, ascending
  std::span<const float> hidden;        // [T, dim], for graphs with a hidden_in node; else empty
  bool wants_hidden = false;            // return the hidden states of all T tokens

  // The slot to which the state after this row of sequence s is written; kNoSlot: none.
  int state_slot(size_t s, size_t row) const {
    if (!row_slots.empty()) return row_slots[row];
    return row + 1 == static_cast<size_t>(seq_begin[s + 1]) ? slots[s] : kNoSlot;
  }
  size_t rope_scaling(size_t s) const { return rope_scalings.empty() ? 0 : static_cast<size_t>(rope_scalings[s]); }
};

// Whether row_slots differ from the empty case, for sequence s or for any.
bool has_row_states(const StepInputs& step, size_t s);
bool has_row_states(const StepInputs& step);
void check_row_slots(const StepInputs& step);                           // aborts unless row_slots are as required
void check_rope_scalings(const StepInputs& step, int n_rope_scalings);  // the same

// Valid until the next start(), or, for a step in flight at that moment, until the start() after it. The backend does
// not read the logits again: a sampler may modify them in place.
struct StepOutput {
  std::span<const TokenId> sampled;  // [R]; negative if no logit of the row can be sampled
  std::span<float> logits;           // [logit_rows, vocab]
  std::span<const float> hidden;     // [T, dim] if wants_hidden
};

}  // namespace zinc
