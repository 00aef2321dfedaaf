// A gated delta rule layer in steps of several rows, from its convolution to its gated norm.
#include "backend/simt/delta_chunks.h"
#include "backend/simt/quantize.h"
#include "backend/simt/short_conv.h"

namespace zinc::simt {

constexpr int kGroupTokens = 8;  // whose q, k and v are in shared memory

// ---- sequences without full chunks ----

// C neighboring columns of a value head's state. Eight lanes share them, four apart: part i has rows i, i + 8, ..., so
// that a column's sums are those of DeltaColumn. has_exact_dims: k_dim is 8 N and a block has all columns.
template <int N, int C, bool has_exact_dims>
struct DeltaTile {
  float S[N][C];
  int k_dim, v_dim, part, column;

  ZINC_DEVICE DeltaTile(const DeltaParams& p, int first_column)
      : k_dim(has_exact_dims ? 8 * N : p.k_dim),
        v_dim(has_exact_dims ? kThreads / 8 * C : p.v_dim),
        part(lane_id() / 4),
        column(first_column + (warp_id() * 4 + lane_id() % 4) * C) {}

  ZINC_DEVICE bool has(int i) const { return has_exact_dims || i * 8 + part < k_dim; }
  ZINC_DEVICE bool has_column(int c) const { return has_exact_dims || column + c < v_dim; }

  // The state is read and written once in a step: it should not evict anything from L2.
  ZINC_DEVICE void load(const float* state, bool is_new_sequence) {
    const float* first_row = state + part * v_dim + column;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int c = 0; c < C; ++c) S[i][c] = 0;
      if (is_new_sequence || !has(i)) continue;
      const float* row = first_row + i * 8 * v_dim;
      if constexpr (has_exact_dims) {
        const float4 x = __ldcs(reinterpret_cast<const float4*>(row));
        S[i][0] = x.x;
        S[i][1] = x.y;
        S[i][2] = x.z;
        S[i][3] = x.w;
      } else {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (has_column(c)) S[i][c] = row[c];
        }
      }
    }
  }
  ZINC_DEVICE void store(float* state) const {
    float* first_row = state + part * v_dim + column;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (!has(i)) continue;
      float* row = first_row + i * 8 * v_dim;
      if constexpr (has_exact_dims) {
        __stcs(reinterpret_cast<float4*>(row), make_float4(S[i][0], S[i][1], S[i][2], S[i][3]));
      } else {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (has_column(c)) row[c] = S[i][c];
        }
      }
    }
  }

  // The sum over the eight parts, in the order of warp_sum(x, 8).
  static ZINC_DEVICE float sum_parts(float x) {
#pragma unroll
    for (int step = 16; step >= 4; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
  }
  // One token. v: of the tile's columns; out: of the token and value head.
  ZINC_DEVICE void update(const float* q, const float* key, const float* v, float decay, float beta, float q_scale,
                          float* out) {
    float s_dot_k[C] = {}, result[C] = {}, delta[C];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float k = has(i) ? key[i * 8 + part] : 0.0f;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        S[i][c] *= decay;
        s_dot_k[c] = fmaf(S[i][c], k, s_dot_k[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < C; ++c) delta[c] = beta * (v[c] - sum_parts(s_dot_k[c]));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float k = has(i) ? key[i * 8 + part] : 0.0f, query = has(i) ? q[i * 8 + part] : 0.0f;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        S[i][c] = fmaf(k, delta[c], S[i][c]);
        result[c] = fmaf(S[i][c], query, result[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < C; ++c) result[c] = sum_parts(result[c]) * q_scale;
    if (part != 0) return;
    if constexpr (has_exact_dims) {
      *reinterpret_cast<float4*>(out + column) = make_float4(result[0], result[1], result[2], result[3]);
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (has_column(c)) out[column + c] = result[c];
      }
    }
  }
};

// Convolution, norms of q and k, and the gated delta rule, token by token. States and weights are loaded before the
// wait: the launch before does not write them. The state of the convolution is updated by delta_finish, because blocks
// that share a key head read it too. Grid: tiles of columns of each value head, sequences.
template <int N, int C, int kTaps, bool has_exact_dims>
ZINC_DEVICE void delta_layer(const DeltaLayerParams& params) {
  constexpr int kColumns = kThreads / 8 * C, kWidth = 2 * 8 * N + kColumns;
  constexpr int kChannels = (kWidth + kThreads - 1) / kThreads;
  __shared__ __align__(16) float values[kGroupTokens][kWidth];  // q, k, and v of the block's columns
  __shared__ float decays[kGroupTokens], betas[kGroupTokens];
  const DeltaParams& p = params.delta;
  const ConvParams& conv = params.conv;
  launch_dependents();
  prefetch_params(params);
  const int thread = static_cast<int>(threadIdx.x), seq = static_cast<int>(blockIdx.y);
  const ConvSeq tokens(conv, seq);
  const DeltaSpan span(tokens.begin, tokens.end, tokens.position);
  if (span.begin >= span.end || (p.leaves_chunked && span.n_chunks > 0)) return wait_dependency();
  const int n_tiles = has_exact_dims ? 1 : (p.v_dim + kColumns - 1) / kColumns;
  const int h = static_cast<int>(blockIdx.x) / n_tiles;
  const int first = (static_cast<int>(blockIdx.x) - h * n_tiles) * kColumns;
  DeltaTile<N, C, has_exact_dims> tile(p, first);
  const int k_dim = tile.k_dim, v_dim = tile.v_dim, key_dim = p.k_heads * k_dim, k_head = key_head(p, h);
  float* state = p.states + tokens.slot * p.slot_floats + static_cast<long long>(h) * k_dim * v_dim;
  tile.load(state, tokens.position == 0);
  int channels[kChannels];  // negative: none
  ConvWindow<kTaps, has_exact_dims> windows[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const int index = thread + i * kThreads, v = index - 2 * k_dim;
    channels[i] = -1;
    if (index < 2 * k_dim) {
      channels[i] = (index < k_dim ? 0 : key_dim - k_dim) + k_head * k_dim + index;
    } else if (v < kColumns && first + v < v_dim) {
      channels[i] = 2 * key_dim + h * v_dim + first + v;
    }
    if (channels[i] >= 0) windows[i].load(conv, tokens, channels[i], tokens.begin);
  }
  wait_dependency();
  for (int begin = tokens.begin; begin < tokens.end; begin += kGroupTokens) {
    const int n = min(kGroupTokens, tokens.end - begin);
    if (begin > tokens.begin) __syncthreads();  // all have read the tokens before
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      if (channels[i] < 0) continue;
      const float* x = conv.x + static_cast<long long>(begin) * conv.n_channels + channels[i];
#pragma unroll 2
      for (int t = 0; t < n; ++t) {
        values[t][thread + i * kThreads] = windows[i].next(x[static_cast<long long>(t) * conv.n_channels]);
      }
    }
    if (thread < n) {
      decays[thread] = expf(log_decay(p, begin + thread, h));
      betas[thread] = sigmoid(p.beta[static_cast<long long>(begin + thread) * p.v_heads + h]);
    }
    __syncthreads();
    for (int i = warp_id(); i < 2 * n; i += kWarps) {
      float* head = values[i / 2] + i % 2 * k_dim;
      const Vec8 own = load_vec8(head, lane_id() * 8, k_dim);
      const float factor = 1.0f / fmaxf(sqrtf(warp_sum(sum_squares(own, 0), 32)), params.norm_eps);
      store_vec8(head, lane_id() * 8, k_dim, normed(own, factor, nullptr, 0, k_dim));
    }
    __syncthreads();
    for (int t = 0; t < n; ++t) {
      float v[C];
#pragma unroll
      for (int c = 0; c < C; ++c) v[c] = tile.has_column(c) ? values[t][2 * k_dim + tile.column - first + c] : 0.0f;
      tile.update(values[t], values[t] + k_dim, v, decays[t], betas[t], p.q_scale,
                  p.out + (static_cast<long long>(begin + t) * p.v_heads + h) * v_dim);
    }
  }
  tile.store(state);
}

ZINC_KERNEL_2_PER_SM delta_layer_128(__grid_constant__ const DeltaLayerParams p) { delta_layer<16, 4, 4, true>(p); }
ZINC_KERNEL delta_layer_upto_128(__grid_constant__ const DeltaLayerParams p) {
  delta_layer<16, 2, kMaxTaps, false>(p);
}
ZINC_KERNEL delta_layer_upto_256(__grid_constant__ const DeltaLayerParams p) {
  delta_layer<32, 1, kMaxTaps, false>(p);
}

// ---- sequences with full chunks ----

// Bit i: token begin + i, of a sequence with full chunks. For a whole warp.
ZINC_DEVICE unsigned long long chunked_tokens(const Step& step, int begin) {
  if (!may_have_chunks(step)) return 0;
  unsigned long long mask = 0;
#pragma unroll
  for (int i = 0; i < kConvTokens / 32; ++i) {
    const int t = begin + i * 32 + lane_id();
    const bool is_chunked = t < step.counts[kTokens] && DeltaSpan(step, step.seq_of_token[t]).n_chunks > 0;
    mask |= static_cast<unsigned long long>(__ballot_sync(0xFFFFFFFFu, is_chunked)) << (32 * i);
  }
  return mask;
}

// Convolution and norms of q and k, for the chunked scan. A block has whole heads of q and k, or 256 channels of v.
// Grid: blocks of channels, tiles of kConvTokens tokens.
ZINC_KERNEL delta_inputs(__grid_constant__ const DeltaInputsParams p) {
  __shared__ __align__(16) float values[kGroupTokens][kThreads];
  launch_dependents();
  wait_dependency();
  const int tile = static_cast<int>(blockIdx.y) * kConvTokens, thread = static_cast<int>(threadIdx.x);
  const unsigned long long chunked = chunked_tokens(p.conv.step, tile);
  if (chunked == 0) return;
  const int tile_end = min(tile + kConvTokens, p.conv.step.counts[kTokens]);
  const int n_heads = kThreads / p.k_dim, key_dim = p.k_heads * p.k_dim;  // n_heads: of a block
  const int n_key_blocks = (2 * p.k_heads + n_heads - 1) / n_heads, block = static_cast<int>(blockIdx.x);
  const bool is_key = block < n_key_blocks;
  const int first = is_key ? block * n_heads * p.k_dim : 2 * key_dim + (block - n_key_blocks) * kThreads;
  const int end = is_key ? min(first + n_heads * p.k_dim, 2 * key_dim) : p.conv.n_channels;
  const int c = first + thread;
  for (int t = tile; t < tile_end;) {
    if ((chunked >> (t - tile) & 1) == 0) {
      ++t;
      continue;
    }
    const ConvSeq tokens(p.conv, p.conv.step.seq_of_token[t]);
    const int run_end = min(tokens.end, tile_end);
    ConvWindow<kMaxTaps> window;
    if (c < end) window.load(p.conv, tokens, c, t);
    for (; t < run_end; t += kGroupTokens) {
      const int n = min(kGroupTokens, run_end - t);
      __syncthreads();
      if (c < end) {
#pragma unroll 4
        for (int i = 0; i < n; ++i) {
          const float x = window.next(p.conv.x[static_cast<long long>(t + i) * p.conv.n_channels + c]);
          if (is_key) {
            values[i][thread] = x;
          } else {
            p.v[static_cast<long long>(t + i) * (p.conv.n_channels - 2 * key_dim) + c - 2 * key_dim] = x;
          }
        }
      }
      __syncthreads();
      const int n_block_heads = is_key ? (end - first) / p.k_dim : 0;
      for (int i = warp_id(); i < n * n_block_heads; i += kWarps) {
        const int head = first / p.k_dim + i % n_block_heads;
        const Vec8 own = load_vec8(values[i / n_block_heads] + i % n_block_heads * p.k_dim, lane_id() * 8, p.k_dim);
        const float factor = 1.0f / fmaxf(sqrtf(warp_sum(sum_squares(own, 0), 32)), p.norm_eps);
        float* out = head < p.k_heads ? p.q : p.k;
        store_vec8(out + (static_cast<long long>(t + i / n_block_heads) * p.k_heads + head % p.k_heads) * p.k_dim,
                   lane_id() * 8, p.k_dim, normed(own, factor, nullptr, 0, p.k_dim));
      }
    }
    t = run_end;
  }
}

// ---- all sequences ----

// RMSNormGated of the heads, one warp per segment of a row, and the state of the convolution. Grid: first the blocks of
// the norm.
ZINC_KERNEL delta_finish(__grid_constant__ const DeltaFinishParams p) {
  launch_dependents();
  const int block = static_cast<int>(blockIdx.x) - p.n_norm_blocks;
  if (block >= 0) {
    const int blocks_per_seq = (p.conv.n_channels + kFinishChannels - 1) / kFinishChannels;
    const int seq = block / blocks_per_seq, first = block % blocks_per_seq * kFinishChannels;
    const ConvSeq tokens(p.conv, seq);
    wait_dependency();
    return tokens.store_inputs<kFinishChannels / kThreads>(p.conv, first + static_cast<int>(threadIdx.x));
  }
  wait_dependency();
  const int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id(), segment = index % n_segments;
  const long long row = index / n_segments;
  if (row >= *p.n_rows) return;
  const int offset = segment * kSegmentElems + lane_id() * 8;
  const Vec8 x = load_vec8(p.x + row * p.width, offset, p.width), gate = load_vec8(p.gate + row * p.width, offset, p.width);
  const float factor = rms_factor(warp_sum(sum_squares(x, 0), p.head_dim / 8), p.head_dim, p.norm_eps);
  Vec8 y = normed(x, factor, p.norm_weight, offset % p.head_dim, p.head_dim);
#pragma unroll
  for (int i = 0; i < 8; ++i) y.v[i] = gated(p.act, gate.v[i], y.v[i]);
  if (p.out) store_vec8(p.out + row * p.width, offset, p.width, y);
  if (p.q8.q) store_q8(quantize_vec8(y, p.q8_block), p.q8, row, segment, p.q8_block);
}

}  // namespace zinc::simt
