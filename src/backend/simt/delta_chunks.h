// The tokens of a step that the gated delta rule processes in chunks: positions 64 c to 64 c + 63 if all of them are in
// the step. A token's rounding depends on this alone, never on other sequences of the step. All other tokens are
// processed one by one: DeltaColumn.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

struct DeltaSpan {
  int begin, end;             // the sequence's tokens in the step
  int chunk_begin, n_chunks;  // first token of its full chunks, and their number

  // position: of the first token.
  ZINC_DEVICE DeltaSpan(int begin, int end, int position) : begin(begin), end(end) {
    chunk_begin = begin + (kDeltaChunk - position % kDeltaChunk) % kDeltaChunk;
    n_chunks = max(0, end - chunk_begin) / kDeltaChunk;
  }
  ZINC_DEVICE DeltaSpan(const Step& step, int seq)
      : DeltaSpan(step.seq_begin[seq], step.seq_begin[seq + 1], step.positions[step.seq_begin[seq]]) {}
  ZINC_DEVICE int chunk_end() const { return chunk_begin + n_chunks * kDeltaChunk; }
};

// False if no sequence has as many tokens as a chunk: in most steps that decode. Every sequence has a token.
ZINC_DEVICE bool may_have_chunks(const Step& step) {
  return step.counts[kTokens] - step.counts[kSeqs] >= kDeltaChunk - 1;
}

// A sequence with full chunks, which are numbered over all sequences.
struct ChunkedSeq {
  int seq = -1;         // negative: none
  int first_chunk = 0;  // its first one
};

// The n-th sequence with full chunks. For a whole warp.
ZINC_DEVICE ChunkedSeq find_chunked_seq(const Step& step, int n) {
  if (!may_have_chunks(step)) return {};
  const int n_seqs = step.counts[kSeqs];
  int first_chunk = 0;
  for (int first = 0; first < n_seqs; first += 32) {
    const int seq = first + lane_id(), n_chunks = seq < n_seqs ? DeltaSpan(step, seq).n_chunks : 0;
    u32 chunked = __ballot_sync(0xFFFFFFFFu, n_chunks > 0);
    if (n >= __popc(chunked)) {
      n -= __popc(chunked);
      first_chunk += warp_sum(n_chunks, 32);
      continue;
    }
    for (; n > 0; --n) chunked &= chunked - 1;  // clears the lowest bit
    const int found = __ffs(chunked) - 1;
    return {first + found, first_chunk + warp_sum(lane_id() < found ? n_chunks : 0, 32)};
  }
  return {};
}

// The first token of a chunk; -1: no such chunk. For a whole warp.
ZINC_DEVICE int find_chunk(const Step& step, int chunk) {
  if (!may_have_chunks(step)) return -1;
  const int n_seqs = step.counts[kSeqs];
  for (int first = 0; first < n_seqs; first += 32) {
    const int seq = min(first + lane_id(), n_seqs - 1);
    const DeltaSpan span(step, seq);
    const int n_chunks = first + lane_id() < n_seqs ? span.n_chunks : 0;
    int n_to_here = n_chunks;  // of this lane and those before it
    for (int by = 1; by < 32; by *= 2) {
      const int before = __shfl_up_sync(0xFFFFFFFFu, n_to_here, by);
      if (lane_id() >= by) n_to_here += before;
    }
    if (const u32 behind = __ballot_sync(0xFFFFFFFFu, chunk < n_to_here)) {
      const int own = span.chunk_begin + (chunk - (n_to_here - n_chunks)) * kDeltaChunk;
      return __shfl_sync(0xFFFFFFFFu, own, __ffs(behind) - 1);
    }
    chunk -= __shfl_sync(0xFFFFFFFFu, n_to_here, 31);
  }
  return -1;
}

ZINC_DEVICE int key_head(const DeltaParams& p, int h) {
  return p.is_cyclic ? h % p.k_heads : h / (p.v_heads / p.k_heads);
}

// The logarithm of a token's decay.
ZINC_DEVICE float log_decay(const DeltaParams& p, float alpha, int h) {
  const float gate = alpha + p.dt_bias[h];
  return p.a[h] * (gate > 20.0f ? gate : log1pf(expf(gate)));
}

// Per value head: S <- exp(a softplus(alpha + dt_bias)) S;  d = sigmoid(beta) (v - S^T k);  S <- S + k d^T;
// out = S^T (q * q_scale). Eight neighboring lanes share a column of S: lane i has rows i, i + 8, ...
template <int N>
struct DeltaColumn {
  float S[N];

  static ZINC_DEVICE int row(int i) { return i * 8 + static_cast<int>(threadIdx.x) % 8; }

  // state: of the column. is_zero: a new sequence, or no such column.
  ZINC_DEVICE void load(const DeltaParams& p, const float* state, bool is_zero) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      S[i] = row(i) < p.k_dim && !is_zero ? state[static_cast<long long>(row(i)) * p.v_dim] : 0.0f;
    }
  }
  ZINC_DEVICE void store(const DeltaParams& p, float* state) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (row(i) < p.k_dim) state[static_cast<long long>(row(i)) * p.v_dim] = S[i];
    }
  }
  // The inputs of a token; q and k in the lane's rows.
  struct Token {
    float q[N], k[N], v, alpha, beta;
    int slot;  // of the state after it
    ZINC_DEVICE void load(const DeltaParams& p, int h, int column, long long t) {
      const long long head = (t * p.k_heads + key_head(p, h)) * p.k_dim;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        q[i] = row(i) < p.k_dim ? p.q[head + row(i)] : 0.0f;
        k[i] = row(i) < p.k_dim ? p.k[head + row(i)] : 0.0f;
      }
      v = column < p.v_dim ? p.v[(t * p.v_heads + h) * p.v_dim + column] : 0.0f;
      alpha = p.alpha[t * p.v_heads + h];
      beta = p.beta[t * p.v_heads + h];
      slot = p.step.row_slots[t];
    }
  };
  // states: of the column in slot 0, if those after the tokens are to be written.
  ZINC_DEVICE void update(const DeltaParams& p, int h, int column, int begin, int end, float* states = nullptr) {
    if (begin >= end) return;
    Token next;
    next.load(p, h, column, begin);
    for (long long t = begin; t < end; ++t) {
      const Token token = next;
      if (t + 1 < end) next.load(p, h, column, t + 1);
      const float decay = expf(log_decay(p, token.alpha, h));
      float s_dot_k = 0, out = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        S[i] *= decay;
        s_dot_k = fmaf(S[i], token.k[i], s_dot_k);
      }
      const float delta = sigmoid(token.beta) * (token.v - warp_sum(s_dot_k, 8));
#pragma unroll
      for (int i = 0; i < N; ++i) {
        S[i] = fmaf(token.k[i], delta, S[i]);
        out = fmaf(S[i], token.q[i], out);
      }
      out = warp_sum(out, 8) * p.q_scale;
      if (threadIdx.x % 8 == 0 && column < p.v_dim) p.out[(t * p.v_heads + h) * p.v_dim + column] = out;
      if (states && token.slot >= 0 && column < p.v_dim) store(p, states + token.slot * p.slot_floats);
    }
  }
};

}  // namespace zinc::simt
