// Sampling, first pass: the best token of each part of a row of logits, and the maximum of each chunk of the part if the row is not
// sampled greedily. One workgroup per part; a warp reads a chunk, two logits per thread.
#version 460
#include "memory.glsl"
#include "sample.glsl"

void main() {
  int row = int(gl_WorkGroupID.y), part = int(gl_WorkGroupID.x);
  if (row >= step_count(kOutputs)) return;
  int per_part = (n_chunks() + kSampleSplits - 1) / kSampleSplits;
  int begin = part * per_part, end = min(n_chunks(), begin + per_part);
  bool stores_chunks = is_sampled(row);
  uint64_t logits = logits_of(row), best = sort_key(0u, 0);
  const int kUnroll = 4;  // chunks in flight per warp
  for (int first = begin; first < end; first += kUnroll * kWarps) {
    uint words[2 * kUnroll];
    [[unroll]] for (int k = 0; k < 2 * kUnroll; ++k) {
      int id = (first + k / 2 * kWarps + warp_id()) * kSampleChunk + k % 2 * 32 + lane_id();
      words[k] = Words(logits).data[min(id, p.vocab - 1)];
    }
    [[unroll]] for (int k = 0; k < kUnroll; ++k) {
      int chunk = first + k * kWarps + warp_id(), id = chunk * kSampleChunk + lane_id();
      bool is_inside = chunk < end;
      uint low = is_inside && id < p.vocab ? logit_key(words[2 * k]) : 0u;
      uint high = is_inside && id + 32 < p.vocab ? logit_key(words[2 * k + 1]) : 0u;
      best = max(best, max(sort_key(low, id), sort_key(high, id + 32)));
      if (!stores_chunks) continue;
      uint chunk_best = clustered_max_uint(max(low, high), 32);
      if (is_inside && lane_id() == 0) Words(p.chunk_best).data[row * n_chunks() + chunk] = chunk_best;
    }
  }
  best = workgroup_max(best);
  if (thread_id() != 0) return;
  Words(p.best).data[row * kSampleSplits + part] = key_of(best);
  Ints(p.best_id).data[row * kSampleSplits + part] = id_of(best);
}
