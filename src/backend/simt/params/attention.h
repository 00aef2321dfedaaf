// Parameters of attention.cu, attention_mma.cu, attention_decode.cu and attention_units.cu, and their compile-time
// shapes.
#pragma once

#include "backend/gpu/params/attention_units.h"
#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kAttentionRows = 8;  // query rows per block

// Keys and values of one layer in the pages of its page group.
struct KvLayer {
  unsigned char* pages;               // the layer's part of page 0
  long long page_bytes;               // from page to page
  int head_bytes, value_begin;        // per head; offset of its values
  int kv_heads, k_dim, v_dim, group;  // group: page group
};

struct KvWriteParams {
  Step step;
  KvLayer kv;
  const float* k;
  const float* v;
};

// The heads of q, k or v before attention, with an optional norm and RoPE.
struct HeadInput {
  const float* x;  // null: none
  const float* norm_weight;
  const float* table;  // RoPE table; null: none
  int n_heads, dim, n_pairs, adjacent, is_normed;
  int stride;  // floats from head to head
  float eps;
};

// Keys and values are written to the KV cache, queries to q_out.
struct HeadsParams {
  Step step;
  KvLayer kv;
  HeadInput parts[3];  // by QkvIndex
  float* q_out;
};

// partial: [a row's heads, its chunks, v_dim + 2] from its first partial on, in attention_units.cu with
// partial_row_floats(v_dim) floats each; in attention_decode.cu [heads, n_chunks, partial_row_floats(v_dim)].
struct AttentionParams {
  Step step;
  KvLayer kv;
  const float* q;
  const float* sinks;  // null: none
  float* out;
  Q8Activation q8;     // of out; q null: none
  const float* gate;   // output gate, [T, heads] rows gate_stride apart: gated(act, gate, result); null: none
  float* partial;      // split-KV partials
  int* done_counters;  // finished blocks of each head tile, [heads] or [T, heads]; zero between launches
  const AttentionUnit* units;
  const int* n_units;
  const int* prefill_tokens;  // [T]: the first from this token on that is not a split row; null: there are none
  int n_heads, heads_per_tile, tokens_per_tile, n_chunks, q8_block, gate_stride, act;
  float scale, softcap;
  int window;
};

// Decode attention, fused: norm and RoPE of the heads, KV cache write, split-KV attention, and the merge of its chunks
// by the last block that finishes a head.
struct AttentionDecodeParams {
  AttentionParams attention;
  HeadInput parts[3];  // by QkvIndex
};

// The elements of a RoPE pair: adjacent (GPT-J), or n_pairs apart (NeoX) with n_pairs a multiple of 8, or any n_pairs.
enum RopeLayout : int { kRopeAdjacent = 0, kRopeHalvesVec8 = 1, kRopeHalvesRagged = 2 };

// The compile-time shape of attention_decode.cu and attention_units.cu, and its shared memory.
struct AttentionDecodeShape {
  int k_dim, v_dim;
  int heads_per_kv_head = 1;
  int tile_heads;  // query heads per block, at most 6 with prepares_heads, else 8
  int window = 0, has_softcap = 0;
  int act = kNoAct;        // of the output gate
  int prepares_heads = 0;  // norm, RoPE and KV cache write (attention_decode.cu)
  int has_keys = 0;        // then: the layer has its own keys and values
  int rope_layout = 0;     // then: RopeLayout
};
// Warps per KV tile: one for each 64 dimensions, a power of two; 0: too many dimensions.
ZINC_HOST_DEVICE int warps_per_kv_tile(int k_dim, int v_dim) {
  for (int n = 1; n <= kWarps; n *= 2) {
    if (k_dim <= 64 * n && v_dim <= 64 * n) return n;
  }
  return 0;
}
ZINC_HOST_DEVICE int warps_per_kv_tile(const AttentionDecodeShape& s) { return warps_per_kv_tile(s.k_dim, s.v_dim); }
// The compile-time shape of attention_mma.cu.
struct AttentionMmaShape {
  int n_warps;  // warps_per_kv_tile()
  int n_sets;   // sets of 16 query rows per warp group
  int act;      // of the output gate; kNoAct: none
  int has_q8;   // its result is quantized
};
// A lane's accumulator over all chunks of a row set: in registers if eight warps share the scores of a tile.
inline constexpr int kAccumulatorFloats = 36;
ZINC_HOST_DEVICE bool accumulates_in_registers(int n_warps) { return n_warps >= 8; }

// A row's split-KV partial of one chunk: max, sum, two spare floats, values.
ZINC_HOST_DEVICE int partial_row_floats(int v_dim) { return 4 + (v_dim + 3) / 4 * 4; }
ZINC_HOST_DEVICE int head_row_floats(const AttentionDecodeShape& s) {
  return ((s.k_dim > s.v_dim ? s.k_dim : s.v_dim) + 31) / 32 * 32;
}
// Queries, the key and the value before RoPE.
ZINC_HOST_DEVICE int n_head_rows(const AttentionDecodeShape& s) { return s.prepares_heads != 0 ? s.tile_heads + 2 : 1; }
// A KV tile in f16, padded against bank conflicts (SmemKv).
ZINC_HOST_DEVICE int kv_tile_bytes(int k_dim, int v_dim) {
  return 2 * ((k_dim + 31) / 32 * 4) * (kPageTokens * 16 + 32) + 64 * ((v_dim + 63) / 64 * 128 + 32);
}
// KV tiles in shared memory at once: as many as leave space for the next kernel's block, at most a chunk's.
ZINC_HOST_DEVICE int kv_tiles_in_flight(const AttentionDecodeShape& s) {
  const int fit = (80 << 10) / kv_tile_bytes(s.k_dim, s.v_dim), n_warp_groups = kWarps / warps_per_kv_tile(s);
  const int n = fit < n_warp_groups ? fit : n_warp_groups;
  return n < 1 ? 1 : n > 4 ? 4 : n == 3 ? 2 : n;
}
ZINC_HOST_DEVICE int attention_decode_smem_bytes(const AttentionDecodeShape& s) {
  const int n_tiles = kv_tiles_in_flight(s);
  const int floats = n_head_rows(s) * head_row_floats(s) + 16 * ((s.k_dim + 31) / 32 * 16 + 4) +
                     n_tiles * (16 * 36 + 32 * warps_per_kv_tile(s)) +
                     s.tile_heads * 4 * ((s.v_dim + 31) / 32 * 32 + 8 + 2);
  return align_128(4 * floats + n_tiles * kv_tile_bytes(s.k_dim, s.v_dim));
}

}  // namespace zinc::simt
