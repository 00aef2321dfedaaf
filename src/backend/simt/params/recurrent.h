// Parameters of recurrent.cu, recurrent_chunks.cu and delta_layer.cu.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kDeltaColumns = 32;      // state columns per block of the chunked scan
inline constexpr int kConvTokens = 64;        // tokens of a short convolution per block
inline constexpr int kFinishChannels = 1024;  // channels whose convolution state a block of delta_finish updates

struct ConvParams {
  Step step;
  const float* x;
  const float* weight;  // [channels, taps]
  float* out;
  float* states;  // of slot 0: [taps, channels], position p at p % taps
  long long slot_floats;
  int n_channels, n_taps;
};

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
  int leaves_chunked;  // the token-by-token kernels leave sequences with full chunks to delta_chunks
};

// A gated delta rule layer, fused with its short convolution: channels of q, k and v one after the other, q and k
// L2-normed per head.
struct DeltaLayerParams {
  DeltaParams delta;  // q, k and v are unused: the kernel computes them
  ConvParams conv;
  float norm_eps;
  int n_seq_rows;    // delta_layer: rows of the grid that are for sequences
  float *q, *k, *v;  // where delta_layer stores those of sequences with full chunks
};

// The gated norm of the heads, and the state of the convolution.
struct DeltaFinishParams {
  ConvParams conv;
  int n_norm_blocks;  // 0: no norm
  const float* x;
  const float* gate;
  const float* norm_weight;  // null: none
  float* out;                // null: only q8
  Q8Activation q8;           // q null: none
  const int* n_rows;
  int width, head_dim, act, q8_block;
  float norm_eps;
};

}  // namespace zinc::simt
