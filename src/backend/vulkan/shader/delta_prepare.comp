// What a chunk of the gated delta rule needs and the state has no part in: delta_chunks.glsl. Grid: chunks, value heads.
// REQUIRES: k_dim + v_dim <= 256.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "delta_chunks.glsl"

const int kSliceFours = 4, kSliceStride = kSliceFours + 1;  // of a row, in fours of floats
const int kPairStride = kChunk / 4 + 1;

shared vec4 key_slice[kChunk * kSliceStride], query_slice[kChunk * kSliceStride];
shared vec4 earlier[kChunk * kPairStride];  // beta_t (G_t / G_j) (k_t . k_j), below the diagonal; zero from it on
shared float decays[kChunk], logs[kChunk], kept[kChunk], betas[kChunk];  // kept: G

float dot_four(vec4 a, vec4 b, float sum) {
  precise float all = fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
  return all;
}

// The first token of a chunk counted over all sequences; -1: there are fewer.
int find_chunk(int chunk) {
  for (int seq = 0; seq < step_count(kSeqs); ++seq) {
    Run run = run_of(seq);
    if (chunk < run.n_chunks) return run.chunks + chunk * kChunk;
    chunk -= run.n_chunks;
  }
  return -1;
}

void find_decays(int first, int h, uint64_t out_logs) {
  Delta d = p.delta;
  int t = thread_id(), at = (first + t) * d.v_heads + h;
  if (t < kChunk) {
    decays[t] = log_decay(Floats(d.alpha).at[at], Floats(d.dt_bias).at[h], Floats(d.a).at[h]);
    betas[t] = sigmoid(Floats(d.beta).at[at]);
  }
  barrier();
  if (t < kChunk) {
    precise float sum = 0;
    for (int j = 0; j <= t; ++j) sum = sum + decays[j];
    logs[t] = sum;
    kept[t] = exp(sum);
    Floats(out_logs).at[t] = sum;
  }
  barrier();
}

// Products of all pairs of tokens: 16 of them a thread, tokens 4 y .. 4 y + 3 and x, x + 16, ...
void multiply_pairs(int first, int h, uint64_t weights) {
  int x = thread_id() % 16, y = thread_id() / 16, row = thread_id() / kSliceFours, four = thread_id() % kSliceFours;
  int k_dim = p.delta.k_dim;
  uint64_t keys_from = head_row(p.delta.k, first + row, h), queries_from = head_row(p.delta.q, first + row, h);
  vec4 kk[4], qk[4];
  [[unroll]] for (int r = 0; r < 4; ++r) kk[r] = qk[r] = vec4(0);
  vec4 key_ahead = load_four(keys_from, 4 * four, k_dim), query_ahead = load_four(queries_from, 4 * four, k_dim);
  for (int i = 0; i < k_dim; i += 4 * kSliceFours) {
    key_slice[row * kSliceStride + four] = key_ahead;
    query_slice[row * kSliceStride + four] = query_ahead;
    barrier();
    int next = i + 4 * (kSliceFours + four);
    key_ahead = load_four(keys_from, next, k_dim);
    query_ahead = load_four(queries_from, next, k_dim);
    [[unroll]] for (int f = 0; f < kSliceFours; ++f) {
      vec4 others[4];
      [[unroll]] for (int c = 0; c < 4; ++c) others[c] = key_slice[(x + 16 * c) * kSliceStride + f];
      [[unroll]] for (int r = 0; r < 4; ++r) {
        vec4 key = key_slice[(4 * y + r) * kSliceStride + f], query = query_slice[(4 * y + r) * kSliceStride + f];
        [[unroll]] for (int c = 0; c < 4; ++c) {
          kk[r][c] = dot_four(key, others[c], kk[r][c]);
          qk[r][c] = dot_four(query, others[c], qk[r][c]);
        }
      }
    }
    barrier();
  }
  [[unroll]] for (int r = 0; r < 4; ++r) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int t = 4 * y + r, j = x + 16 * c;
      precise float decay = j <= t ? exp(logs[t] - logs[j]) : 0.0;
      precise float before = betas[t] * decay * kk[r][c];
      precise float weight = decay * qk[r][c] * p.delta.q_scale;
      earlier[t * kPairStride + j / 4][j % 4] = j < t ? before : 0.0;
      Floats(weights).at[t * kChunk + j] = weight;
    }
  }
  barrier();
}

vec4 x[kChunk / 4];  // a thread's column of W or U

float sum_of_four(vec4 a) {
  precise float sum = (a.x + a.y) + (a.z + a.w);
  return sum;
}
// Tokens 4 b .. 4 b + 3 of (1 + earlier) x = right, where those before are solved. `b` must be a literal for x to stay in
// registers.
#define SOLVE_FOUR(b)                                                                                      \
  {                                                                                                        \
    precise vec4 s[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));                                       \
    [[unroll]] for (int j = 0; j < b; ++j) {                                                               \
      [[unroll]] for (int r = 0; r < 4; ++r) s[r] = fma(earlier[(4 * b + r) * kPairStride + j], x[j], s[r]); \
    }                                                                                                      \
    precise vec4 y = x[b];                                                                                 \
    y.x = y.x - sum_of_four(s[0]);                                                                         \
    [[unroll]] for (int r = 1; r < 4; ++r) {                                                               \
      s[r] = fma(earlier[(4 * b + r) * kPairStride + b], y, s[r]);                                         \
      y[r] = y[r] - sum_of_four(s[r]);                                                                     \
    }                                                                                                      \
    x[b] = y;                                                                                              \
  }

// By forward substitution.
void solve(int first, int h, Prepared to) {
  Delta d = p.delta;
  bool is_key = thread_id() < d.k_dim;
  int column = is_key ? thread_id() : thread_id() - d.k_dim, width = is_key ? d.k_dim : d.v_dim;
  if (column >= width) return;
  uint64_t from = is_key ? head_row(d.k, first, h) : d.v + uint64_t((first * d.v_heads + h) * d.v_dim) * 4ul;
  int stride = width * (is_key ? d.k_heads : d.v_heads);
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) x[b][r] = Floats(from).at[(4 * b + r) * stride + column];
  }
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) {
      precise float right = is_key ? kept[4 * b + r] * x[b][r] : x[b][r];
      right = right * betas[4 * b + r];
      x[b][r] = right;
    }
  }
  SOLVE_FOUR(0) SOLVE_FOUR(1) SOLVE_FOUR(2) SOLVE_FOUR(3) SOLVE_FOUR(4) SOLVE_FOUR(5) SOLVE_FOUR(6) SOLVE_FOUR(7)
  SOLVE_FOUR(8) SOLVE_FOUR(9) SOLVE_FOUR(10) SOLVE_FOUR(11) SOLVE_FOUR(12) SOLVE_FOUR(13) SOLVE_FOUR(14) SOLVE_FOUR(15)
  uint64_t out_ = is_key ? to.keys : to.values;
  [[unroll]] for (int b = 0; b < kChunk / 4; ++b) {
    [[unroll]] for (int r = 0; r < 4; ++r) Floats(out_).at[(4 * b + r) * width + column] = x[b][r];
  }
}

void main() {
  int chunk = int(gl_WorkGroupID.x), h = int(gl_WorkGroupID.y), first = find_chunk(chunk);
  if (first < 0) return;
  Prepared to = prepared_of(chunk, h);
  find_decays(first, h, to.logs);
  multiply_pairs(first, h, to.weights);
  solve(first, h, to);
}
