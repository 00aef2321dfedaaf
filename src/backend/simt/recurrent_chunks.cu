// The gated delta rule in chunks of 64 tokens (chunked scan). With S the state before a chunk, G_t the product of the
// decays up to its token t, and u_t the update of token t along its key,
//   u_t = beta_t (v_t - G_t S^T k_t - sum over j < t of (G_t / G_j) (k_t . k_j) u_j)
//   out_t = G_t S^T q_t + sum over j <= t of (G_t / G_j) (q_t . k_j) u_j
//   S after it = G_last S + sum over j of (G_last / G_j) k_j u_j^T
// u is linear in S: u = U - W S. delta_prepare solves for U and W, all chunks in parallel; delta_chunks scans the
// chunks with S in shared memory. All in float32.
#include "backend/simt/delta_chunks.h"

namespace zinc::simt {

constexpr int kChunk = kDeltaChunk, kMaxDim = 128, kRowStride = kMaxDim + 4, kPairStride = kChunk + 4;

// Output of delta_prepare for one chunk and value head.
struct PreparedChunk {
  // W [64][k_dim], U [64][v_dim], (G_t / G_j) (q_t . k_j) [64][64], log G [64].
  float *w, *u, *intra, *cum_log_decay;
  ZINC_DEVICE PreparedChunk(const DeltaParams& p, int chunk, int h) {
    const long long floats = kChunk * (p.k_dim + p.v_dim + kChunk + 1);
    w = p.prepared + (static_cast<long long>(chunk) * p.v_heads + h) * floats;
    u = w + kChunk * p.k_dim;
    intra = u + kChunk * p.v_dim;
    cum_log_decay = intra + kChunk * kChunk;
  }
};

ZINC_DEVICE float4 load_4(const float* ptr) { return *reinterpret_cast<const float4*>(ptr); }
ZINC_DEVICE float dot_4(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

struct PrepareSmem {
  float k[kChunk][kRowStride], q[kChunk][kRowStride];
  float kk_lower[kChunk][kPairStride];  // beta_t (G_t / G_j) (k_t . k_j), below the diagonal
  float log_decay[kChunk], cum_log_decay[kChunk], betas[kChunk];
};

// Dot products of all token pairs, 16 per thread.
ZINC_DEVICE void pairwise_dots(const DeltaParams& p, PrepareSmem& smem, float* intra) {
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
  float kk[4][4] = {}, qk[4][4] = {};
  for (int i = 0; i < p.k_dim; i += 4) {
    float4 k[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) k[c] = load_4(&smem.k[x + 16 * c][i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float4 key = load_4(&smem.k[y * 4 + r][i]), query = load_4(&smem.q[y * 4 + r][i]);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        kk[r][c] = dot_4(key, k[c], kk[r][c]);
        qk[r][c] = dot_4(query, k[c], qk[r][c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int t = y * 4 + r, j = x + 16 * c;
      const float decay = j <= t ? expf(smem.cum_log_decay[t] - smem.cum_log_decay[j]) : 0.0f;
      smem.kk_lower[t][j] = j < t ? smem.betas[t] * decay * kk[r][c] : 0.0f;
      intra[t * kChunk + j] = decay * qk[r][c] * p.q_scale;
    }
  }
}

// Solves one column of (1 + kk_lower) x = right by forward substitution, in place.
ZINC_DEVICE void solve_column(const PrepareSmem& smem, float (&x)[kChunk]) {
#pragma unroll
  for (int t = 1; t < kChunk; ++t) {
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < t; j += 4) {
      const float4 row = load_4(&smem.kk_lower[t][j]);  // zero on and above the diagonal
      sums[0] = fmaf(row.x, x[j], sums[0]);
      if (j + 1 < t) sums[1] = fmaf(row.y, x[j + 1], sums[1]);
      if (j + 2 < t) sums[2] = fmaf(row.z, x[j + 2], sums[2]);
      if (j + 3 < t) sums[3] = fmaf(row.w, x[j + 3], sums[3]);
    }
    x[t] -= (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

// Grid: chunks, value heads.
ZINC_KERNEL delta_prepare(__grid_constant__ const DeltaParams p) {
  extern __shared__ float4 shared[];
  PrepareSmem& smem = *reinterpret_cast<PrepareSmem*>(shared);
  launch_dependents();
  wait_dependency();
  const int chunk = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const long long first = find_chunk(p.step, chunk);
  if (first < 0) return;
  const PreparedChunk out(p, chunk, h);
  for (int i = thread; i < kChunk * p.k_dim; i += kThreads) {
    const long long offset = ((first + i / p.k_dim) * p.k_heads + key_head(p, h)) * p.k_dim + i % p.k_dim;
    smem.k[i / p.k_dim][i % p.k_dim] = p.k[offset];
    smem.q[i / p.k_dim][i % p.k_dim] = p.q[offset];
  }
  if (thread < kChunk) {
    smem.log_decay[thread] = log_decay(p, p.alpha[(first + thread) * p.v_heads + h], h);
    smem.betas[thread] = sigmoid(p.beta[(first + thread) * p.v_heads + h]);
  }
  __syncthreads();
  if (thread < kChunk) {
    float sum = 0;
    for (int j = 0; j <= thread; ++j) sum += smem.log_decay[j];
    smem.cum_log_decay[thread] = sum;
    out.cum_log_decay[thread] = sum;
  }
  __syncthreads();
  pairwise_dots(p, smem, out.intra);
  __syncthreads();
  if (thread >= p.k_dim + p.v_dim) return;
  const bool is_key = thread < p.k_dim;
  const int column = is_key ? thread : thread - p.k_dim;
  float x[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    x[t] = is_key ? expf(smem.cum_log_decay[t]) * smem.k[t][column]
                  : p.v[((first + t) * p.v_heads + h) * p.v_dim + column];
    x[t] *= smem.betas[t];
  }
  solve_column(smem, x);
#pragma unroll
  for (int t = 0; t < kChunk; ++t) (is_key ? out.w + t * p.k_dim : out.u + t * p.v_dim)[column] = x[t];
}

// ---- scan over chunks ----

struct ChunkSmem {
  float w[kChunk][kRowStride], q[kChunk][kRowStride], k[kChunk][kRowStride];
  float intra[kChunk][kPairStride];
  float state[kMaxDim][kDeltaColumns], u[kChunk][kDeltaColumns];
  float cum_log_decay[2][kChunk];  // of this chunk and the next
  float decay_to_end[kChunk];      // G_last / G_t
};

ZINC_DEVICE void copy_rows(float* to, int to_stride, const float* from, long long from_stride, int width) {
  const int pieces = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * pieces; i += kThreads) {
    float* dst = to + i / pieces * to_stride + i % pieces * 4;
    const float* source = from + i / pieces * from_stride + i % pieces * 4;
    cp_async_16(dst, source);
  }
}
// Waits for all but the last two commit groups, for the whole block.
ZINC_DEVICE void wait_oldest_copies() {
  cp_async_wait<2>();
  __syncthreads();
}

// A thread's tile of 64 tokens by 32 columns: four tokens, two columns.
struct ThreadTile {
  int column, token, key;  // key: the first of eight rows of the state
  ZINC_DEVICE ThreadTile()
      : column(static_cast<int>(threadIdx.x) % 16 * 2),
        token(static_cast<int>(threadIdx.x) / 16 * 4),
        key(static_cast<int>(threadIdx.x) / 16 * 8) {}
};

// sum += rows[token] . columns, over n.
template <int R>
ZINC_DEVICE void multiply_rows(const float* rows, int stride, const float (*columns)[kDeltaColumns],
                               const ThreadTile& lane, int n, float (&sum)[R][2]) {
#pragma unroll 4
  for (int i = 0; i < n; i += 4) {
    float2 c[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) c[j] = *reinterpret_cast<const float2*>(&columns[i + j][lane.column]);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float4 row = load_4(rows + (lane.token + r) * stride + i);
      sum[r][0] = dot_4(row, make_float4(c[0].x, c[1].x, c[2].x, c[3].x), sum[r][0]);
      sum[r][1] = dot_4(row, make_float4(c[0].y, c[1].y, c[2].y, c[3].y), sum[r][1]);
    }
  }
}

// The chunk's u from U, W and the state.
ZINC_DEVICE void find_u(const DeltaParams& p, const PreparedChunk& from, ChunkSmem& smem, const ThreadTile& lane,
                        int first) {
  float sum[4][2] = {}, u[4][2];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = first + lane.column + c;
      u[r][c] = column < p.v_dim ? from.u[(lane.token + r) * p.v_dim + column] : 0.0f;
    }
  }
  multiply_rows<4>(&smem.w[0][0], kRowStride, smem.state, lane, p.k_dim, sum);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    *reinterpret_cast<float2*>(&smem.u[lane.token + r][lane.column]) =
        make_float2(u[r][0] - sum[r][0], u[r][1] - sum[r][1]);
  }
}

ZINC_DEVICE void write_chunk(const DeltaParams& p, const ChunkSmem& smem, const float* cum_log_decay,
                             const ThreadTile& lane, long long first_token, int h, int first) {
  float inter_out[4][2] = {}, intra_out[4][2] = {};
  multiply_rows<4>(&smem.q[0][0], kRowStride, smem.state, lane, p.k_dim, inter_out);
  multiply_rows<4>(&smem.intra[0][0], kPairStride, smem.u, lane, min(kChunk, lane.token + 4), intra_out);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float factor = expf(cum_log_decay[lane.token + r]) * p.q_scale;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = first + lane.column + c;
      if (column >= p.v_dim) continue;
      p.out[((first_token + lane.token + r) * p.v_heads + h) * p.v_dim + column] =
          fmaf(factor, inter_out[r][c], intra_out[r][c]);
    }
  }
}

ZINC_DEVICE void update_state(const DeltaParams& p, ChunkSmem& smem, const float* cum_log_decay,
                              const ThreadTile& lane) {
  if (lane.key >= p.k_dim) return;
  float sum[8][2] = {};
#pragma unroll 4
  for (int t = 0; t < kChunk; ++t) {
    const float decay = smem.decay_to_end[t];
    float2 u = *reinterpret_cast<const float2*>(&smem.u[t][lane.column]);
    u.x *= decay;
    u.y *= decay;
    const float4 a = load_4(&smem.k[t][lane.key]), b = load_4(&smem.k[t][lane.key + 4]);
    const float k[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      sum[r][0] = fmaf(k[r], u.x, sum[r][0]);
      sum[r][1] = fmaf(k[r], u.y, sum[r][1]);
    }
  }
  const float decay = expf(cum_log_decay[kChunk - 1]);
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    float2& s = *reinterpret_cast<float2*>(&smem.state[lane.key + r][lane.column]);
    s = make_float2(fmaf(decay, s.x, sum[r][0]), fmaf(decay, s.y, sum[r][1]));
  }
}

// Scans the chunks of a sequence, whose state is in shared memory. Ends with a barrier.
ZINC_DEVICE void scan_chunks(const DeltaParams& p, const DeltaSpan& span, int first_chunk, int h, int first,
                             ChunkSmem& smem) {
  const ThreadTile lane;
  const int thread = static_cast<int>(threadIdx.x);
  const long long row = static_cast<long long>(p.k_heads) * p.k_dim;
  const auto chunk_rows = [&](const float* rows, int chunk) {
    return rows + static_cast<long long>(span.chunk_begin + chunk * kChunk) * row + key_head(p, h) * p.k_dim;
  };
  const auto fetch_w = [&](int chunk) {
    if (chunk < span.n_chunks) {
      const PreparedChunk from(p, first_chunk + chunk, h);
      copy_rows(&smem.w[0][0], kRowStride, from.w, p.k_dim, p.k_dim);
      if (thread < kChunk) smem.cum_log_decay[chunk % 2][thread] = from.cum_log_decay[thread];
    }
    cp_async_commit();
  };
  const auto fetch_q = [&](int chunk) {
    if (chunk < span.n_chunks) {
      copy_rows(&smem.q[0][0], kRowStride, chunk_rows(p.q, chunk), row, p.k_dim);
      copy_rows(&smem.intra[0][0], kPairStride, PreparedChunk(p, first_chunk + chunk, h).intra, kChunk, kChunk);
    }
    cp_async_commit();
  };
  const auto fetch_k = [&](int chunk) {
    if (chunk < span.n_chunks) copy_rows(&smem.k[0][0], kRowStride, chunk_rows(p.k, chunk), row, p.k_dim);
    cp_async_commit();
  };
  fetch_w(0);
  fetch_q(0);
  fetch_k(0);
  for (int c = 0; c < span.n_chunks; ++c) {
    const float* cum_log_decay = smem.cum_log_decay[c % 2];
    wait_oldest_copies();
    if (thread < kChunk) smem.decay_to_end[thread] = expf(cum_log_decay[kChunk - 1] - cum_log_decay[thread]);
    find_u(p, PreparedChunk(p, first_chunk + c, h), smem, lane, first);
    __syncthreads();
    fetch_w(c + 1);
    wait_oldest_copies();
    write_chunk(p, smem, cum_log_decay, lane, span.chunk_begin + c * kChunk, h, first);
    __syncthreads();
    fetch_q(c + 1);
    wait_oldest_copies();
    update_state(p, smem, cum_log_decay, lane);
    __syncthreads();
    fetch_k(c + 1);
  }
}

// The sequences with full chunks, and those of their tokens that are in none. Grid: tiles of columns, value heads,
// sequences; a block takes further sequences in turn.
extern "C" __global__ void __launch_bounds__(256, 1) delta_chunks(__grid_constant__ const DeltaParams p) {
  extern __shared__ float4 shared[];
  ChunkSmem& smem = *reinterpret_cast<ChunkSmem*>(shared);
  launch_dependents();
  wait_dependency();
  const int first = static_cast<int>(blockIdx.x) * kDeltaColumns, h = static_cast<int>(blockIdx.y);
  const int own_column = static_cast<int>(threadIdx.x) / 8, column = first + own_column;
  const bool is_in_bounds = column < p.v_dim;
  for (int n = static_cast<int>(blockIdx.z);; n += static_cast<int>(gridDim.z)) {
    const ChunkedSeq found = find_chunked_seq(p.step, n);
    if (found.seq < 0) return;
    const DeltaSpan span(p.step, found.seq);
    float* state =
        p.states + p.step.slots[found.seq] * p.slot_floats + static_cast<long long>(h) * p.k_dim * p.v_dim + column;
    DeltaColumn<kMaxDim / 8> own;
    own.load(p, state, p.step.positions[span.begin] == 0 || !is_in_bounds);
    own.update(p, h, column, span.begin, span.chunk_begin);
#pragma unroll
    for (int i = 0; i < kMaxDim / 8; ++i) smem.state[own.row(i)][own_column] = own.S[i];
    scan_chunks(p, span, found.first_chunk, h, first, smem);
#pragma unroll
    for (int i = 0; i < kMaxDim / 8; ++i) own.S[i] = smem.state[own.row(i)][own_column];
    own.update(p, h, column, span.chunk_end(), span.end);
    if (is_in_bounds) own.store(p, state);
  }
}

}  // namespace zinc::simt
