// A gated delta rule layer in steps of several rows, from its convolution to its gated norm.
#include "backend/simt/delta_chunks.h"
#include "backend/simt/quantize.h"
#include "backend/simt/short_conv.h"

namespace zinc::simt {

constexpr int kGroupTokens = 8;  // whose inputs, then q, k and v, are a stage in shared memory; there are two

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

// The norm of a head, in a warp.
ZINC_DEVICE Vec8 l2_normed(const float* head, int dim, float eps) {
  const Vec8 own = load_vec8(head, lane_id() * 8, dim);
  const float factor = 1.0f / fmaxf(sqrtf(warp_sum(sum_squares(own, 0), 32)), eps);
  return normed(own, factor, nullptr, 0, dim);
}

// Up to kThreads channels: whole heads of q and k, or channels of v.
struct InputChannels {
  int first, end;
  int n_heads;  // of q and k; 0: v

  ZINC_DEVICE InputChannels(const DeltaParams& p, int n_channels, int block) {
    const int key_dim = p.k_heads * p.k_dim, block_heads = kThreads / p.k_dim;
    const int n_key_blocks = (2 * p.k_heads + block_heads - 1) / block_heads;
    const bool is_key = block < n_key_blocks;
    first = is_key ? block * block_heads * p.k_dim : 2 * key_dim + (block - n_key_blocks) * kThreads;
    end = is_key ? min(first + block_heads * p.k_dim, 2 * key_dim) : n_channels;
    n_heads = is_key ? (end - first) / p.k_dim : 0;
  }
};

// Tokens [begin, end) of a sequence. A stage has kThreads floats for each of kGroupTokens tokens.
ZINC_DEVICE void convolve_inputs(const DeltaLayerParams& params, const InputChannels& channels, const ConvSeq& seq,
                                 int begin, int end, float* stages, int& stage) {
  const DeltaParams& p = params.delta;
  const ConvParams& conv = params.conv;
  const int thread = static_cast<int>(threadIdx.x), c = channels.first + thread, key_dim = p.k_heads * p.k_dim;
  const bool has_channel = c < channels.end;
  const auto row = [&](int t) { return stages + (stage * kGroupTokens + t) * kThreads; };
  const auto fetch = [&](int first) {
    for (int t = 0; t < min(kGroupTokens, end - first) && has_channel; ++t) {
      cp_async<4>(row(t) + thread, conv.x + static_cast<long long>(first + t) * conv.n_channels + c);
    }
    cp_async_commit();
  };
  fetch(begin);
  ConvWindow<kMaxTaps> window;
  if (has_channel) window.load(conv, seq, c, begin);
  for (int first = begin; first < end; first += kGroupTokens) {
    const int n = min(kGroupTokens, end - first);
    cp_async_wait<0>();
    for (int t = 0; t < n && has_channel; ++t) {
      window.push(row(t)[thread]);
      if (channels.n_heads > 0) {
        row(t)[thread] = window.result();
      } else {
        params.v[static_cast<long long>(first + t) * (conv.n_channels - 2 * key_dim) + c - 2 * key_dim] =
            window.result();
      }
    }
    __syncthreads();  // and all have read the other stage
    const float* convolved = row(0);
    stage ^= 1;
    if (first + kGroupTokens < end) fetch(first + kGroupTokens);
    for (int i = warp_id(); i < n * channels.n_heads; i += kWarps) {
      const int t = i / channels.n_heads, own = i % channels.n_heads, head = channels.first / p.k_dim + own;
      float* out = head < p.k_heads ? params.q : params.k;
      store_vec8(out + (static_cast<long long>(first + t) * p.k_heads + head % p.k_heads) * p.k_dim, lane_id() * 8,
                 p.k_dim, l2_normed(convolved + t * kThreads + own * p.k_dim, p.k_dim, params.norm_eps));
    }
  }
}

// Convolution and norms of q and k, for the chunked scan. Blocks take kThreads channels in turn.
ZINC_DEVICE void delta_inputs(const DeltaLayerParams& params, int token_tile, float* stages) {
  const ConvParams& conv = params.conv;
  const int tile = token_tile * kConvTokens, tile_end = min(tile + kConvTokens, conv.step.counts[kTokens]);
  const unsigned long long chunked = chunked_tokens(conv.step, tile);
  wait_dependency();
  if (chunked == 0) return;
  int stage = 0;
  for (int block = static_cast<int>(blockIdx.x);; block += static_cast<int>(gridDim.x)) {
    const InputChannels channels(params.delta, conv.n_channels, block);
    if (channels.first >= conv.n_channels) return;
    for (int t = tile; t < tile_end;) {
      if ((chunked >> (t - tile) & 1) == 0) {
        ++t;
        continue;
      }
      const ConvSeq seq(conv, conv.step.seq_of_token[t]);
      const int end = min(seq.end, tile_end);
      convolve_inputs(params, channels, seq, t, end, stages, stage);
      t = end;
    }
  }
}

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
    if (is_new_sequence) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int c = 0; c < C; ++c) S[i][c] = 0;
      }
      return;
    }
    const float* first_row = state + part * v_dim + column;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float* row = first_row + i * 8 * v_dim;
      if constexpr (has_exact_dims) {
        const float4 x = __ldcs(reinterpret_cast<const float4*>(row));
        S[i][0] = x.x;
        S[i][1] = x.y;
        S[i][2] = x.z;
        S[i][3] = x.w;
      } else {
#pragma unroll
        for (int c = 0; c < C; ++c) S[i][c] = has(i) && has_column(c) ? row[c] : 0.0f;
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

template <int kWidth>
struct LayerStage {
  float values[kGroupTokens][kWidth];  // q, k, and v of the block's columns
  float decays[kGroupTokens], betas[kGroupTokens];
  int slots[kGroupTokens];  // of the state after each token
};

// Convolution, norms of q and k, and the gated delta rule of a sequence, token by token; false: the step has no such
// sequence. States and weights are loaded before the wait: the launch before does not write them. The state of the
// convolution is updated by delta_finish, because blocks that share a key head read it too.
template <int N, int C, int kTaps, bool has_exact_dims, int kWidth>
ZINC_DEVICE bool update_sequence(const DeltaLayerParams& params, int seq, LayerStage<kWidth> (&stages)[2], int& stage) {
  constexpr int kColumns = kThreads / 8 * C, kChannels = (kWidth + kThreads - 1) / kThreads;
  const DeltaParams& p = params.delta;
  const ConvParams& conv = params.conv;
  const int thread = static_cast<int>(threadIdx.x);
  const ConvSeq tokens(conv, seq);
  if (tokens.begin >= tokens.end) return false;
  if (p.leaves_chunked && DeltaSpan(tokens.begin, tokens.end, tokens.position).n_chunks > 0) return true;
  const int n_tiles = has_exact_dims ? 1 : (p.v_dim + kColumns - 1) / kColumns;
  const int h = static_cast<int>(blockIdx.x) / n_tiles;
  const int first = (static_cast<int>(blockIdx.x) - h * n_tiles) * kColumns;
  DeltaTile<N, C, has_exact_dims> tile(p, first);
  const int k_dim = tile.k_dim, v_dim = tile.v_dim;
  float* states = p.states + static_cast<long long>(h) * k_dim * v_dim;
  tile.load(states + tokens.slot * p.slot_floats, tokens.position == 0);
  const int key_dim = p.k_heads * k_dim, k_head = key_head(p, h);
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
  const auto fetch = [&](int begin) {
    for (int t = 0; t < min(kGroupTokens, tokens.end - begin); ++t) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        if (channels[i] < 0) continue;
        cp_async<4>(&stages[stage].values[t][thread + i * kThreads],
                    conv.x + static_cast<long long>(begin + t) * conv.n_channels + channels[i]);
      }
    }
    cp_async_commit();
  };
  wait_dependency();
  fetch(tokens.begin);
  for (int begin = tokens.begin; begin < tokens.end; begin += kGroupTokens) {
    const int n = min(kGroupTokens, tokens.end - begin);
    LayerStage<kWidth>& group = stages[stage];
    // The last warp has the fewest channels.
    const int gate = thread - (kThreads - 32);
    if (gate >= 0 && gate < n) {
      const long long index = static_cast<long long>(begin + gate) * p.v_heads + h;
      const float alpha = p.alpha[index], beta = p.beta[index];
      group.slots[gate] = p.step.row_slots[begin + gate];
      group.decays[gate] = expf(log_decay(p, alpha, h));
      group.betas[gate] = sigmoid(beta);
    }
    cp_async_wait<0>();
    for (int t = 0; t < n; ++t) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        if (channels[i] < 0) continue;
        float& value = group.values[t][thread + i * kThreads];
        windows[i].push(value);
        value = windows[i].result();
      }
    }
    __syncthreads();  // and all have read the other stage
    stage ^= 1;
    if (begin + kGroupTokens < tokens.end) fetch(begin + kGroupTokens);
    for (int i = warp_id(); i < 2 * n; i += kWarps) {
      float* head = group.values[i / 2] + i % 2 * k_dim;
      store_vec8(head, lane_id() * 8, k_dim, l2_normed(head, k_dim, params.norm_eps));
    }
    __syncthreads();
    for (int t = 0; t < n; ++t) {
      float v[C];
#pragma unroll
      for (int c = 0; c < C; ++c) v[c] = tile.has_column(c) ? group.values[t][2 * k_dim + tile.column - first + c] : 0.0f;
      tile.update(group.values[t], group.values[t] + k_dim, v, group.decays[t], group.betas[t], p.q_scale,
                  p.out + (static_cast<long long>(begin + t) * p.v_heads + h) * v_dim);
      if (const int slot = group.slots[t]; slot >= 0) tile.store(states + slot * p.slot_floats);
    }
  }
  return true;
}

// Grid: tiles of columns of each value head, sequences, of which a block takes further ones in turn; further rows of
// the grid prepare the inputs of sequences with full chunks, a tile of kConvTokens tokens each.
template <int N, int C, int kTaps, bool has_exact_dims>
ZINC_DEVICE void delta_layer(const DeltaLayerParams& params) {
  constexpr int kWidth = 2 * 8 * N + kThreads / 8 * C;
  __shared__ __align__(16) LayerStage<kWidth> stages[2];
  static_assert(sizeof(stages) >= 2 * kGroupTokens * kThreads * sizeof(float));
  launch_dependents();
  prefetch_params(params);
  int row = static_cast<int>(blockIdx.y);
  if (row >= params.n_seq_rows) {
    return delta_inputs(params, row - params.n_seq_rows, reinterpret_cast<float*>(stages));
  }
  int stage = 0;
  while (row < params.delta.step.max_seqs && update_sequence<N, C, kTaps, has_exact_dims>(params, row, stages, stage)) {
    row += params.n_seq_rows;
  }
  wait_dependency();
}

ZINC_KERNEL_2_PER_SM delta_layer_128(__grid_constant__ const DeltaLayerParams p) { delta_layer<16, 4, 4, true>(p); }
// Any other dimensions.
extern "C" __global__ void __launch_bounds__(256, 1) delta_layer_upto_128(__grid_constant__ const DeltaLayerParams p) {
  delta_layer<16, 2, kMaxTaps, false>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1) delta_layer_upto_256(__grid_constant__ const DeltaLayerParams p) {
  delta_layer<32, 1, kMaxTaps, false>(p);
}

// ---- all sequences ----

// RMSNormGated of the heads, one warp per segment of a row, and the state of the convolution. Grid: first the blocks of
// the norm.
ZINC_KERNEL_2_PER_SM delta_finish(__grid_constant__ const DeltaFinishParams p) {
  launch_dependents();
  const int block = static_cast<int>(blockIdx.x) - p.n_norm_blocks;
  if (block >= 0) {
    const int blocks_per_seq = (p.conv.n_channels + kFinishChannels - 1) / kFinishChannels;
    const int seq = block / blocks_per_seq, first = block % blocks_per_seq * kFinishChannels;
    const ConvSeq tokens(p.conv, seq);
    wait_dependency();
    return tokens.store_states<kFinishChannels / kThreads>(p.conv, first + static_cast<int>(threadIdx.x));
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
