// The gated delta rule over chunks of 64 tokens. With S the state before a chunk, G_t the product of the decays up to
// token t of it and u_t what token t adds along its key,
//   u_t = beta_t (v_t - G_t S^T k_t - sum over j < t of (G_t / G_j) (k_t . k_j) u_j)
//   out_t = G_t S^T q_t + sum over j <= t of (G_t / G_j) (q_t . k_j) u_j
//   S after it = G_last S + sum over j of (G_last / G_j) k_j u_j^T
// u is linear in S: u = U - W S. delta_prepare solves for U and W, all chunks at once; delta_chunks goes from chunk to
// chunk with S in shared memory. All of it in float32.
#include "backend/simt/delta_chunks.h"

namespace zinc::simt {

constexpr int kChunk = kDeltaChunk, kMaxDim = 128, kRowStride = kMaxDim + 4, kPairStride = kChunk + 4;

// What delta_prepare leaves of one chunk and value head.
struct Prepared {
  float *keys, *values, *weights, *logs;  // W [64][k_dim], U [64][v_dim], of earlier tokens [64][64], log G [64]
  ZINC_DEVICE Prepared(const DeltaParams& p, int chunk, int h) {
    const long long floats = kChunk * (p.k_dim + p.v_dim + kChunk + 1);
    keys = p.prepared + (static_cast<long long>(chunk) * p.v_heads + h) * floats;
    values = keys + kChunk * p.k_dim;
    weights = values + kChunk * p.v_dim;
    logs = weights + kChunk * kChunk;
  }
};

ZINC_DEVICE int key_head(const DeltaParams& p, int h) {
  return p.is_cyclic ? h % p.k_heads : h / (p.v_heads / p.k_heads);
}

// The first token of a chunk counted over all sequences; -1: there are fewer.
ZINC_DEVICE int find_chunk(const Step& step, int chunk) {
  for (int seq = 0; seq < step.counts[kSeqs]; ++seq) {
    const DeltaRun run(step, seq);
    if (chunk < run.n_chunks) return run.chunks + chunk * kChunk;
    chunk -= run.n_chunks;
  }
  return -1;
}

ZINC_DEVICE float4 load_4(const float* at) { return *reinterpret_cast<const float4*>(at); }
ZINC_DEVICE float dot_4(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

struct PrepareRoom {
  float k[kChunk][kRowStride], q[kChunk][kRowStride];
  float earlier[kChunk][kPairStride];  // beta_t (G_t / G_j) (k_t . k_j), below the diagonal
  float decays[kChunk], logs[kChunk], betas[kChunk];
};

// Products of all pairs of tokens: 16 of them a thread.
ZINC_DEVICE void multiply_pairs(const DeltaParams& p, PrepareRoom& room, float* weights) {
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
  float kk[4][4] = {}, qk[4][4] = {};
  for (int i = 0; i < p.k_dim; i += 4) {
    float4 k[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) k[c] = load_4(&room.k[x + 16 * c][i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float4 key = load_4(&room.k[y * 4 + r][i]), query = load_4(&room.q[y * 4 + r][i]);
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
      const float decay = j <= t ? expf(room.logs[t] - room.logs[j]) : 0.0f;
      room.earlier[t][j] = j < t ? room.betas[t] * decay * kk[r][c] : 0.0f;
      weights[t * kChunk + j] = decay * qk[r][c] * p.q_scale;
    }
  }
}

// One column of (1 + earlier) x = right by forward substitution; x replaces right.
ZINC_DEVICE void solve_column(const PrepareRoom& room, float (&x)[kChunk]) {
#pragma unroll
  for (int t = 1; t < kChunk; ++t) {
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < t; j += 4) {
      const float4 row = load_4(&room.earlier[t][j]);  // zero from the diagonal on
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
  PrepareRoom& room = *reinterpret_cast<PrepareRoom*>(shared);
  let_next_start();
  wait_for_previous();
  const int chunk = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const long long first = find_chunk(p.step, chunk);
  if (first < 0) return;
  const Prepared out(p, chunk, h);
  for (int i = thread; i < kChunk * p.k_dim; i += kThreads) {
    const long long at = ((first + i / p.k_dim) * p.k_heads + key_head(p, h)) * p.k_dim + i % p.k_dim;
    room.k[i / p.k_dim][i % p.k_dim] = p.k[at];
    room.q[i / p.k_dim][i % p.k_dim] = p.q[at];
  }
  if (thread < kChunk) {
    room.decays[thread] = log_decay(p, first + thread, h);
    room.betas[thread] = sigmoid(p.beta[(first + thread) * p.v_heads + h]);
  }
  __syncthreads();
  if (thread < kChunk) {
    float sum = 0;
    for (int j = 0; j <= thread; ++j) sum += room.decays[j];
    room.logs[thread] = sum;
    out.logs[thread] = sum;
  }
  __syncthreads();
  multiply_pairs(p, room, out.weights);
  __syncthreads();
  if (thread >= p.k_dim + p.v_dim) return;
  const bool is_key = thread < p.k_dim;
  const int column = is_key ? thread : thread - p.k_dim;
  float x[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    x[t] = is_key ? expf(room.logs[t]) * room.k[t][column] : p.v[((first + t) * p.v_heads + h) * p.v_dim + column];
    x[t] *= room.betas[t];
  }
  solve_column(room, x);
#pragma unroll
  for (int t = 0; t < kChunk; ++t) (is_key ? out.keys + t * p.k_dim : out.values + t * p.v_dim)[column] = x[t];
}

// ---- from chunk to chunk ----

struct ChunkRoom {
  float w[kChunk][kRowStride], q[kChunk][kRowStride], k[kChunk][kRowStride];
  float weights[kChunk][kPairStride];
  float state[kMaxDim][kDeltaColumns], u[kChunk][kDeltaColumns];
  float logs[2][kChunk];  // of this chunk and the next
  float falls[kChunk];    // G_last / G_t
};

ZINC_DEVICE void copy_rows(float* to, int to_stride, const float* from, long long from_stride, int width) {
  const int pieces = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * pieces; i += kThreads) {
    float* at = to + i / pieces * to_stride + i % pieces * 4;
    const float* source = from + i / pieces * from_stride + i % pieces * 4;
    copy_16(at, source);
  }
}
// All but the last two sets of copies are there, for the whole block.
ZINC_DEVICE void wait_for_oldest() {
  await_copies<2>();
  __syncthreads();
}

// What a thread has of 64 tokens and 32 columns: four tokens, two columns.
struct ChunkLane {
  int column, token, key;  // key: the first of eight rows of the state
  ZINC_DEVICE ChunkLane()
      : column(static_cast<int>(threadIdx.x) % 16 * 2),
        token(static_cast<int>(threadIdx.x) / 16 * 4),
        key(static_cast<int>(threadIdx.x) / 16 * 8) {}
};

// sum += rows[token] . columns, over n.
template <int R>
ZINC_DEVICE void multiply_rows(const float* rows, int stride, const float (*columns)[kDeltaColumns],
                               const ChunkLane& lane, int n, float (&sum)[R][2]) {
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
ZINC_DEVICE void find_u(const DeltaParams& p, const Prepared& from, ChunkRoom& room, const ChunkLane& lane, int first) {
  float sum[4][2] = {}, u[4][2];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = first + lane.column + c;
      u[r][c] = column < p.v_dim ? from.values[(lane.token + r) * p.v_dim + column] : 0.0f;
    }
  }
  multiply_rows<4>(&room.w[0][0], kRowStride, room.state, lane, p.k_dim, sum);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    *reinterpret_cast<float2*>(&room.u[lane.token + r][lane.column]) =
        make_float2(u[r][0] - sum[r][0], u[r][1] - sum[r][1]);
  }
}

ZINC_DEVICE void write_chunk(const DeltaParams& p, const ChunkRoom& room, const float* logs, const ChunkLane& lane,
                             long long first_token, int h, int first) {
  float of_state[4][2] = {}, of_chunk[4][2] = {};
  multiply_rows<4>(&room.q[0][0], kRowStride, room.state, lane, p.k_dim, of_state);
  multiply_rows<4>(&room.weights[0][0], kPairStride, room.u, lane, min(kChunk, lane.token + 4), of_chunk);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float factor = expf(logs[lane.token + r]) * p.q_scale;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = first + lane.column + c;
      if (column >= p.v_dim) continue;
      p.out[((first_token + lane.token + r) * p.v_heads + h) * p.v_dim + column] =
          fmaf(factor, of_state[r][c], of_chunk[r][c]);
    }
  }
}

ZINC_DEVICE void move_state(const DeltaParams& p, ChunkRoom& room, const float* logs, const ChunkLane& lane) {
  if (lane.key >= p.k_dim) return;
  float sum[8][2] = {};
#pragma unroll 4
  for (int t = 0; t < kChunk; ++t) {
    const float decay = room.falls[t];
    float2 u = *reinterpret_cast<const float2*>(&room.u[t][lane.column]);
    u.x *= decay;
    u.y *= decay;
    const float4 a = load_4(&room.k[t][lane.key]), b = load_4(&room.k[t][lane.key + 4]);
    const float k[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      sum[r][0] = fmaf(k[r], u.x, sum[r][0]);
      sum[r][1] = fmaf(k[r], u.y, sum[r][1]);
    }
  }
  const float decay = expf(logs[kChunk - 1]);
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    float2& s = *reinterpret_cast<float2*>(&room.state[lane.key + r][lane.column]);
    s = make_float2(fmaf(decay, s.x, sum[r][0]), fmaf(decay, s.y, sum[r][1]));
  }
}

// Grid: tiles of columns, value heads, sequences.
extern "C" __global__ void __launch_bounds__(256, 1) delta_chunks(__grid_constant__ const DeltaParams p) {
  extern __shared__ float4 shared[];
  ChunkRoom& room = *reinterpret_cast<ChunkRoom*>(shared);
  let_next_start();
  wait_for_previous();
  const int first = static_cast<int>(blockIdx.x) * kDeltaColumns, h = static_cast<int>(blockIdx.y);
  const int seq = static_cast<int>(blockIdx.z), thread = static_cast<int>(threadIdx.x);
  if (seq >= p.step.counts[kSeqs]) return;
  const DeltaRun run(p.step, seq);
  if (run.n_chunks == 0) return;
  int first_chunk = 0;
  for (int s = 0; s < seq; ++s) first_chunk += DeltaRun(p.step, s).n_chunks;
  const ChunkLane lane;
  float* state = p.states + p.step.slots[seq] * p.slot_floats + static_cast<long long>(h) * p.k_dim * p.v_dim + first;
  const bool is_fresh = p.step.positions[run.chunks] == 0;
  for (int i = thread; i < kMaxDim * kDeltaColumns; i += kThreads) {
    const int k = i / kDeltaColumns, column = i % kDeltaColumns;
    const bool is_inside = k < p.k_dim && first + column < p.v_dim;
    room.state[k][column] = is_inside && !is_fresh ? state[static_cast<long long>(k) * p.v_dim + column] : 0.0f;
  }
  const long long row = static_cast<long long>(p.k_heads) * p.k_dim;
  const auto at = [&](const float* rows, int chunk) {
    return rows + static_cast<long long>(run.chunks + chunk * kChunk) * row + key_head(p, h) * p.k_dim;
  };
  const auto fetch_w = [&](int chunk) {
    if (chunk < run.n_chunks) {
      const Prepared from(p, first_chunk + chunk, h);
      copy_rows(&room.w[0][0], kRowStride, from.keys, p.k_dim, p.k_dim);
      if (thread < kChunk) room.logs[chunk % 2][thread] = from.logs[thread];
    }
    end_copies();
  };
  const auto fetch_q = [&](int chunk) {
    if (chunk < run.n_chunks) {
      copy_rows(&room.q[0][0], kRowStride, at(p.q, chunk), row, p.k_dim);
      copy_rows(&room.weights[0][0], kPairStride, Prepared(p, first_chunk + chunk, h).weights, kChunk, kChunk);
    }
    end_copies();
  };
  const auto fetch_k = [&](int chunk) {
    if (chunk < run.n_chunks) copy_rows(&room.k[0][0], kRowStride, at(p.k, chunk), row, p.k_dim);
    end_copies();
  };
  fetch_w(0);
  fetch_q(0);
  fetch_k(0);
  for (int c = 0; c < run.n_chunks; ++c) {
    const float* logs = room.logs[c % 2];
    wait_for_oldest();
    if (thread < kChunk) room.falls[thread] = expf(logs[kChunk - 1] - logs[thread]);
    find_u(p, Prepared(p, first_chunk + c, h), room, lane, first);
    __syncthreads();
    fetch_w(c + 1);
    wait_for_oldest();
    write_chunk(p, room, logs, lane, run.chunks + c * kChunk, h, first);
    __syncthreads();
    fetch_q(c + 1);
    wait_for_oldest();
    move_state(p, room, logs, lane);
    __syncthreads();
    fetch_k(c + 1);
  }
  for (int i = thread; i < p.k_dim * kDeltaColumns; i += kThreads) {
    const int k = i / kDeltaColumns, column = i % kDeltaColumns;
    if (first + column < p.v_dim) state[static_cast<long long>(k) * p.v_dim + column] = room.state[k][column];
  }
}

}  // namespace zinc::simt
