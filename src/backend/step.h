// One run of a plan: what goes in, what comes out. Plain views of arrays the caller owns.
//
// A step holds S sequences with runs of tokens of any length: a prefill chunk is a long run, a decode row a run of one;
// both may stand in the same step. Where a run starts at position 0 the sequence's recurrent state starts from zero.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_id.h"
#include "graph/cache_spec.h"
#include "graph/sampling_params.h"

namespace zinc {

// In StepInputs::tokens: the token this sequence's slot sampled last. It never leaves the device.
inline constexpr TokenId kFromDevice = -1;

// Pages of S sequences in one page group, row-major: position p of sequence s lies in entries[s * stride + p /
// kPageTokens].
struct PageTable {
  std::span<const PageId> entries;
  int stride = 0;
};

struct StepInputs {
  std::span<const TokenId> tokens;         // [T]
  std::span<const int32_t> positions;      // [T]; consecutive within a sequence's run
  std::span<const int32_t> seq_begin;      // [S+1]: sequence s owns tokens seq_begin[s] .. seq_begin[s+1]-1
  std::span<const int32_t> slots;          // [S]: which slot holds its recurrent state and last sampled token
  std::span<const PageTable> page_tables;  // one per page group, in the order of page_groups()
  std::span<const int32_t> output_rows;    // [R]: tokens whose next token is wanted, ascending
  std::span<const TokenDraw> draws = {};   // [R], one row of a sequence at most: how their tokens are chosen; empty:
                                           // the most likely ones. REQUIRES: BackendInfo::draws_tokens
  std::span<const int32_t> logit_rows;     // which of the R rows' logits are wanted on the host, ascending
  std::span<const float> hidden;           // [T, dim], for graphs with a hidden_in node; else empty
  bool wants_hidden = false;               // give back the hidden states of all T tokens
};

// Valid until the next start(); of a step that is in flight then, until the one after it. Nobody looks at the logits
// again: whoever chooses from them may write there.
struct StepOutput {
  std::span<const TokenId> sampled;  // [R]; where the backend draws tokens, negative if no logit can be chosen
  std::span<float> logits;           // [logit_rows, vocab]
  std::span<const float> hidden;     // [T, dim] if wanted
};

}  // namespace zinc
