// Gated delta rule, the state-independent part of each chunk: solves for W and U; see delta_chunks.glsl. Grid: chunks, value
// heads. REQUIRES: k_dim + v_dim <= 256.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "delta_chunks.glsl"

const int kSliceVec4s = 4, kSliceStride = kSliceVec4s + 1;  // row length and stride in vec4
const int kPairStride = kChunk / 4 + 1;

shared vec4 key_slice[kChunk * kSliceStride], query_slice[kChunk * kSliceStride];
shared vec4 lower_triangle[kChunk * kPairStride];  // beta_t (G_t / G_j) (k_t . k_j) for j < t, else zero
// log_decays: cumulative (log G); decay_products: G.
shared float token_log_decays[kChunk], log_decays[kChunk], decay_products[kChunk], betas[kChunk];

float dot_vec4(vec4 a, vec4 b, float sum) {
  precise float result = fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
  return result;
}

// First token of a chunk, numbered over all sequences; -1: past the last chunk.
int find_chunk(int chunk) {
  for (int seq = 0; seq < step_count(kSeqs); ++seq) {
    SequenceRange range = sequence_range(seq);
    if (chunk < range.n_chunks) return range.first_chunk_token + chunk * kChunk;
    chunk -= range.n_chunks;
  }
  return -1;
}

void compute_decays(int first, int h, uint64_t out_log_decays) {
  DeltaParams d = p.delta;
  int t = thread_id(), offset = (first + t) * d.v_heads + h;
  if (t < kChunk) {
    token_log_decays[t] = log_decay(Floats(d.alpha).data[offset], Floats(d.dt_bias).data[h], Floats(d.a).data[h]);
    betas[t] = sigmoid(Floats(d.beta).data[offset]);
  }
  barrier();
  if (t < kChunk) {
    precise float sum = 0;
    for (int j = 0; j <= t; ++j) sum = sum + token_log_decays[j];
    log_decays[t] = sum;
    decay_products[t] = exp(sum);
    Floats(out_log_decays).data[t] = sum;
  }
  barrier();
}

// Dot products of all pairs of tokens: 16 per thread, tokens 4 y .. 4 y + 3 with x, x + 16, ...
void multiply_pairs(int first, int h, uint64_t weights) {
  int x = thread_id() % 16, y = thread_id() / 16, row = thread_id() / kSliceVec4s, vec4_idx = thread_id() % kSliceVec4s;
  int k_dim = p.delta.k_dim;
  uint64_t keys_from = head_row(p.delta.k, first + row, h), queries_from = head_row(p.delta.q, first + row, h);
  vec4 kk[4], qk[4];
  [[unroll]] for (int r = 0; r < 4; ++r) kk[r] = qk[r] = vec4(0);
  vec4 key_prefetch = load_vec4(keys_from, 4 * vec4_idx, k_dim), query_prefetch = load_vec4(queries_from, 4 * vec4_idx, k_dim);
  for (int i = 0; i < k_dim; i += 4 * kSliceVec4s) {
    key_slice[row * kSliceStride + vec4_idx] = key_prefetch;
    query_slice[row * kSliceStride + vec4_idx] = query_prefetch;
    barrier();
    int next = i + 4 * (kSliceVec4s + vec4_idx);
    key_prefetch = load_vec4(keys_from, next, k_dim);
    query_prefetch = load_vec4(queries_from, next, k_dim);
    [[unroll]] for (int f = 0; f < kSliceVec4s; ++f) {
      vec4 other_keys[4];
      [[unroll]] for (int c = 0; c < 4; ++c) other_keys[c] = key_slice[(x + 16 * c) * kSliceStride + f];
      [[unroll]] for (int r = 0; r < 4; ++r) {
        vec4 key = key_slice[(4 * y + r) * kSliceStride + f], query = query_slice[(4 * y + r) * kSliceStride + f];
        [[unroll]] for (int c = 0; c < 4; ++c) {
          kk[r][c] = dot_vec4(key, other_keys[c], kk[r][c]);
          qk[r][c] = dot_vec4(query, other_keys[c], qk[r][c]);
        }
      }
    }
    barrier();
  }
  [[unroll]] for (int r = 0; r < 4; ++r) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int t = 4 * y + r, j = x + 16 * c;
      precise float decay = j <= t ? exp(log_decays[t] - log_decays[j]) : 0.0;
      precise float lower = betas[t] * decay * kk[r][c];
      precise float weight = decay * qk[r][c] * p.delta.q_scale;
      lower_triangle[t * kPairStride + j / 4][j % 4] = j < t ? lower : 0.0;
      Floats(weights).data[t * kChunk + j] = weight;
    }
  }
  barrier();
}

vec4 x[kChunk / 4];  // a thread's column of W or U

float sum_vec4(vec4 a) {
  precise float sum = (a.x + a.y) + (a.z + a.w);
  return sum;
}
// Solves tokens 4 b .. 4 b + 3 of (1 + lower_triangle) x = rhs, given the earlier tokens. `b` must be a literal so that x
// stays in registers.
#define SOLVE_VEC4(b)                                                                                                \
  {                                                                                                                  \
    precise vec4 s[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));                                                 \
    [[unroll]] for (int j = 0; j < b; ++j) {                                                                         \
      [[unroll]] for (int r = 0; r < 4; ++r) s[r] = fma(lower_triangle[(4 * b + r) * kPairStride + j], x[j], s[r]);  \
    }                                                                                                                \
    precise vec4 y = x[b];                                                                                           \
    y.x = y.x - sum_vec4(s[0]);                                                                                      \
    [[unroll]] for (int r = 1; r < 4; ++r) {                                                                         \
      s[r] = fma(lower_triangle[(4 * b + r) * kPairStride + b], y, s[r]);                                            \
      y[r] = y[r] - sum_vec4(s[r]);                                                                                  \
    }                                                                                                                \
    x[b] = y;                                                                                                        \
  }

// Forward substitution.
void solve(int first, int h, Prepared to) {
  DeltaParams d = p.delta;
  bool is_key = thread_id() < d.k_dim;
  int column = is_key ? thread_id() : thread_id() - d.k_dim, width = is_key ? d.k_dim : d.v_dim;
  if (column >= width) return;
  uint64_t from = is_key ? head_row(d.k, first, h) : d.v + uint64_t((first * d.v_heads + h) * d.v_dim) * 4ul;
  int stride = width * (is_key ? d.k_heads : d.v_heads);
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) x[b][r] = Floats(from).data[(4 * b + r) * stride + column];
  }
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) {
      precise float rhs = is_key ? decay_products[4 * b + r] * x[b][r] : x[b][r];
      rhs = rhs * betas[4 * b + r];
      x[b][r] = rhs;
    }
  }
  SOLVE_VEC4(0) SOLVE_VEC4(1) SOLVE_VEC4(2) SOLVE_VEC4(3) SOLVE_VEC4(4) SOLVE_VEC4(5) SOLVE_VEC4(6) SOLVE_VEC4(7)
  SOLVE_VEC4(8) SOLVE_VEC4(9) SOLVE_VEC4(10) SOLVE_VEC4(11) SOLVE_VEC4(12) SOLVE_VEC4(13) SOLVE_VEC4(14) SOLVE_VEC4(15)
  uint64_t out_ = is_key ? to.keys : to.values;
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) Floats(out_).data[(4 * b + r) * width + column] = x[b][r];
  }
}

void main() {
  int chunk = int(gl_WorkGroupID.x), h = int(gl_WorkGroupID.y), first = find_chunk(chunk);
  if (first < 0) return;
  Prepared to = prepared_of(chunk, h);
  compute_decays(first, h, to.log_decays);
  multiply_pairs(first, h, to.weights);
  solve(first, h, to);
}
