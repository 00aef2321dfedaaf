// Parameters of short_conv.comp and of the delta_*.comp. Declared once: host C++, and GLSL by tools/shaders.
#pragma once

#include "backend/vulkan/params/matmul.h"
#include "backend/vulkan/params/step.h"

namespace zinc::vulkan {

inline constexpr int kConvTokens = 16;    // tokens of a short convolution per workgroup
inline constexpr int kMaxDeltaDim = 128;  // limit of k_dim and v_dim of the chunked gated delta rule

inline constexpr int kDeltaLayerColumns = 128;  // columns of a value head per workgroup of delta_layer.comp
inline constexpr int kFinishChannels = 1024;    // channels of a sequence per workgroup of delta_finish.comp

// The tokens outside of complete chunks, which delta_recurrent.comp processes one by one.
enum DeltaTokens : int { kBeforeChunks = 0, kAfterChunks = 1 };

namespace shader {

struct ConvParams {
  uint64_t x, weight, out;
  uint64_t states, slot_bytes;  // of slot 0: [taps, channels]
  int n_channels, n_taps;
};

struct ShortConvParams {
  CounterSync sync;
  ConvParams conv;
};

struct DeltaParams {
  uint64_t q, k, v, alpha, beta, dt_bias, a, out;
  uint64_t states, slot_bytes;  // of slot 0: [heads, k_dim, v_dim]
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
};

struct DeltaChunksParams {
  CounterSync sync;
  DeltaParams delta;
  uint64_t prepared;  // [chunk, v_heads]: W [64][k_dim], U [64][v_dim], weights of earlier tokens [64][64], log G [64]
  int part, unused;   // part: DeltaTokens, for delta_recurrent.comp
};

struct DeltaFinishParams {
  CounterSync sync;
  ConvParams conv;
  uint64_t x, gate, norm_weight, out;  // [rows, width]; out 0: only the quantized output
  Q8Activation q8;
  int n_rows, width, head_dim, act, n_norm_workgroups;
  float norm_eps;
};

struct DeltaDecodeParams {  // delta_layer.comp too
  CounterSync sync;
  DeltaParams delta;
  ConvParams conv;
  float eps;
};

}  // namespace shader
}  // namespace zinc::vulkan
