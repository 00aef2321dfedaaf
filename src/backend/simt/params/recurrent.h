// Parameters of recurrent.cu and recurrent_chunks.cu.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kDeltaColumns = 32;  // state columns per block
inline constexpr int kConvTokens = 64;    // tokens of a short convolution per block

struct ConvParams {
  Step step;
  const float* x;
  const float* weight;  // [channels, taps]
  float* out;
  float* states;  // of slot 0: [taps, channels], position p at p % taps
  long long slot_floats;
  int n_channels, n_taps;
};

enum DeltaTokens : int { kAllTokens = 0, kBeforeChunks = 1, kAfterChunks = 2 };
struct DeltaParams {
  Step step;
  const float* q;
  const float* k;
  const float* v;
  const float* alpha;
  const float* beta;
  const float* dt_bias;
  const float* a;
  float* out;
  float* states;  // of slot 0
  long long slot_floats;
  float* prepared;  // [chunk, v_heads]: PreparedChunk of recurrent_chunks.cu
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
  int part;  // DeltaTokens: the tokens that the token-by-token kernel handles
};

// Decode of a gated delta layer, fused with its short convolution: channels of q, k and v one after the other, q and k
// L2-normed per head.
struct DeltaDecodeParams {
  DeltaParams delta;  // q, k and v are unused: the kernel computes them
  ConvParams conv;
  float norm_eps;
};

}  // namespace zinc::simt
