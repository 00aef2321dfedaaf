// The gated delta rule over chunks of 64 tokens: positions 64 c to 64 c + 63 where all of them belong to one run of the
// step; what is before or after goes token by token. What a token's result rounds to depends on this alone. With S the
// state before a chunk, G_t the product of the decays up to token t of it and u_t what token t adds along its key,
//   u_t = beta_t (v_t - G_t S^T k_t - sum over j < t of (G_t / G_j) (k_t . k_j) u_j)
//   out_t = G_t S^T q_t + sum over j <= t of (G_t / G_j) (q_t . k_j) u_j
//   S after it = G_last S + sum over j of (G_last / G_j) k_j u_j^T
// u is linear in S: u = U - W S. delta_prepare.comp solves for U and W, all chunks at once; delta_chunks.comp goes from
// chunk to chunk with S in shared memory.
#include "recurrence.glsl"

const int kChunk = 64;
const int kBeforeChunks = 0, kAfterChunks = 1;

struct Params {
  Delta delta;
  uint64_t prepared;  // [chunk, v_heads]: W [64][k_dim], U [64][v_dim], weights of earlier tokens [64][64], log G [64]
  int part, unused;   // of the tokens, where they go one after the other
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

struct Run {
  int begin, end;        // a sequence's tokens
  int chunks, n_chunks;  // where its whole chunks begin, and how many there are
};
Run run_of(int seq) {
  Run run;
  run.begin = Ints(step.seq_begin).at[seq];
  run.end = Ints(step.seq_begin).at[seq + 1];
  int position = run.begin < run.end ? Ints(step.positions).at[run.begin] : 0;
  run.chunks = run.begin + (kChunk - position % kChunk) % kChunk;
  run.n_chunks = max(0, run.end - run.chunks) / kChunk;
  return run;
}

struct Prepared {
  uint64_t keys, values, weights, logs;
};
Prepared prepared_of(int chunk, int h) {
  Delta d = p.delta;
  Prepared at;
  at.keys = p.prepared + uint64_t(chunk * d.v_heads + h) * uint64_t(kChunk * (d.k_dim + d.v_dim + kChunk + 1)) * 4ul;
  at.values = at.keys + uint64_t(kChunk * d.k_dim) * 4ul;
  at.weights = at.values + uint64_t(kChunk * d.v_dim) * 4ul;
  at.logs = at.weights + uint64_t(kChunk * kChunk) * 4ul;
  return at;
}

// Numbers at .. at + 3 of a row, zero past its end.
vec4 load_four(uint64_t row, int at, int width) {
  if ((width & 3) == 0) return at < width ? FloatQuads(row).at[at / 4] : vec4(0);
  vec4 x = vec4(0);
  [[unroll]] for (int c = 0; c < 4; ++c) {
    if (at + c < width) x[c] = Floats(row).at[at + c];
  }
  return x;
}

// A token's keys or queries, of the value head's key head.
uint64_t head_row(uint64_t x, int token, int h) {
  Delta d = p.delta;
  return x + uint64_t((token * d.k_heads + key_head(d, h)) * d.k_dim) * 4ul;
}
