// The tokens of a step that the gated delta rule processes in chunks: positions 64 c to 64 c + 63 if all of them are in
// the step. A token's rounding depends on this alone, never on other sequences of the step.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

struct DeltaSpan {
  int begin, end;             // the sequence's tokens in the step
  int chunk_begin, n_chunks;  // first token of its full chunks, and their number

  ZINC_DEVICE DeltaSpan(const Step& step, int seq) : begin(step.seq_begin[seq]), end(step.seq_begin[seq + 1]) {
    const int position = begin < end ? step.positions[begin] : 0;
    chunk_begin = begin + (kDeltaChunk - position % kDeltaChunk) % kDeltaChunk;
    n_chunks = max(0, end - chunk_begin) / kDeltaChunk;
  }
  // Restricts the span to the tokens before, or after, its full chunks.
  ZINC_DEVICE void restrict_to(int part) {
    if (part == kBeforeChunks && n_chunks > 0) end = chunk_begin;
    if (part == kAfterChunks) begin = n_chunks > 0 ? chunk_begin + n_chunks * kDeltaChunk : end;
  }
};

// The logarithm of a token's decay.
ZINC_DEVICE float log_decay(const DeltaParams& p, long long t, int h) {
  const float gate = p.alpha[t * p.v_heads + h] + p.dt_bias[h];
  return p.a[h] * (gate > 20.0f ? gate : log1pf(expf(gate)));
}

}  // namespace zinc::simt
