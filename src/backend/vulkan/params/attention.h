// Parameters of attention.comp, attention_coopmat.comp and qk_norm_rope.comp. Declared once: host C++, and GLSL by
// tools/shaders.
#pragma once

#include "backend/gpu/params/kv_layer.h"
#include "backend/vulkan/params/row_ops.h"

namespace zinc::vulkan {

inline constexpr int kMaxCoopmatValueDim = 256;  // limit of v_dim of attention_coopmat.comp

// The heads of q, k or v before attention, with an optional norm and RoPE.
struct HeadInput {
  uint64_t x;  // 0: absent
  uint64_t norm_weight;
  RopeTable rope;
  int n_heads, dim, is_normed;
  float eps;
  int stride, unused;  // stride: between heads
};

namespace shader {

struct QkNormRopeParams {
  CounterSync sync;
  KvLayer kv;
  HeadInput parts[3];  // by QkvIndex
  uint64_t q_out;
  int n_rows;
};

struct AttentionParams {
  CounterSync sync;
  KvLayer kv;
  HeadInput parts[3];  // by QkvIndex; used if fused
  uint64_t q, sinks, out;
  uint64_t partial;        // [tokens, heads, n_chunks, v_dim padded to vec4, then maximum and sum], or a unit's
  uint64_t done_counters;  // [tokens, tiles of heads]: chunks that have finished; zero between steps
  uint64_t gate;           // output gate, decode only; 0: none
  int n_rows, n_heads, heads_per_tile, tokens_per_tile, n_chunks, window;
  float scale, softcap;
  int gate_stride, gate_act;                      // gate_stride: between heads
  int units, n_units, prefill_tokens, max_units;  // gpu/attention_units.h: indices in the step's upload; their limit
};

}  // namespace shader
}  // namespace zinc::vulkan
