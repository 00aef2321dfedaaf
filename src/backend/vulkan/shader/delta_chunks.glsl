// Chunked form (WY) of the gated delta rule, chunks of 64 tokens: positions 64 c to 64 c + 63 where one step has all of them
// for a sequence; tokens before and after go one by one. The rounding of a result depends on its position alone. With S the
// state before a chunk, G_t the product of decays up to token t in the chunk and u_t the update of token t along its key,
//   u_t = beta_t (v_t - G_t S^T k_t - sum over j < t of (G_t / G_j) (k_t . k_j) u_j)
//   out_t = G_t S^T q_t + sum over j <= t of (G_t / G_j) (q_t . k_j) u_j
//   S after the chunk = G_last S + sum over j of (G_last / G_j) k_j u_j^T
// u is linear in S: u = U - W S. delta_prepare.comp solves for U and W, all chunks in parallel; delta_chunks.comp scans the
// chunks with S in shared memory.
#include "delta_rule.glsl"

const int kChunk = kDeltaChunk;

layout(set = 0, binding = 0, scalar) uniform Block { DeltaChunksParams p; };

struct SequenceRange {
  int begin, end;  // the sequence's tokens in the step
  int first_chunk_token, n_chunks;  // of its complete chunks
};
SequenceRange sequence_range(int seq) {
  SequenceRange range;
  range.begin = Ints(step.seq_begin).data[seq];
  range.end = Ints(step.seq_begin).data[seq + 1];
  int position = range.begin < range.end ? Ints(step.positions).data[range.begin] : 0;
  range.first_chunk_token = range.begin + (kChunk - position % kChunk) % kChunk;
  range.n_chunks = max(0, range.end - range.first_chunk_token) / kChunk;
  return range;
}

struct Prepared {
  uint64_t keys, values, weights, log_decays;
};
Prepared prepared_of(int chunk, int h) {
  DeltaParams d = p.delta;
  Prepared prepared;
  prepared.keys = p.prepared + uint64_t(chunk * d.v_heads + h) * uint64_t(kChunk * (d.k_dim + d.v_dim + kChunk + 1)) * 4ul;
  prepared.values = prepared.keys + uint64_t(kChunk * d.k_dim) * 4ul;
  prepared.weights = prepared.values + uint64_t(kChunk * d.v_dim) * 4ul;
  prepared.log_decays = prepared.weights + uint64_t(kChunk * kChunk) * 4ul;
  return prepared;
}

// Elements offset .. offset + 3 of a row, zero past its end.
vec4 load_vec4(uint64_t row, int offset, int width) {
  if ((width & 3) == 0) return offset < width ? FloatQuads(row).data[offset / 4] : vec4(0);
  vec4 x = vec4(0);
  [[unroll]] for (int c = 0; c < 4; ++c) {
    if (offset + c < width) x[c] = Floats(row).data[offset + c];
  }
  return x;
}

// Row of a token's key or query, of the key head that value head h uses.
uint64_t head_row(uint64_t x, int token, int h) {
  DeltaParams d = p.delta;
  return x + uint64_t((token * d.k_heads + key_head(d, h)) * d.k_dim) * 4ul;
}
