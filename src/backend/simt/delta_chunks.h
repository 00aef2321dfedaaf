// Which tokens of a step the gated delta rule takes in chunks: positions 64 c to 64 c + 63 where all of them belong to
// one run of the step. What a token's result rounds to depends on this alone, never on what else is in the step.
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

struct DeltaRun {
  int begin, end;        // the run's tokens
  int chunks, n_chunks;  // where its whole chunks begin, and how many there are

  ZINC_DEVICE DeltaRun(const Step& step, int seq) : begin(step.seq_begin[seq]), end(step.seq_begin[seq + 1]) {
    const int position = begin < end ? step.positions[begin] : 0;
    chunks = begin + (kDeltaChunk - position % kDeltaChunk) % kDeltaChunk;
    n_chunks = max(0, end - chunks) / kDeltaChunk;
  }
  // Narrows the run to what is done token by token before, or after, its whole chunks.
  ZINC_DEVICE void keep(int part) {
    if (part == kBeforeChunks && n_chunks > 0) end = chunks;
    if (part == kAfterChunks) begin = n_chunks > 0 ? chunks + n_chunks * kDeltaChunk : end;
  }
};

// The decay a token brings, as a logarithm.
ZINC_DEVICE float log_decay(const DeltaParams& p, long long t, int h) {
  const float gate = p.alpha[t * p.v_heads + h] + p.dt_bias[h];
  return p.a[h] * (gate > 20.0f ? gate : log1pf(expf(gate)));
}

}  // namespace zinc::simt
