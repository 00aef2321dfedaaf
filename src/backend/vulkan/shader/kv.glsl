// The paged KV cache of one layer. Values of a head are row-major within a page; so are f16 keys, as cooperative matrices load
// them. Other keys are a panel of 32 positions in 16-byte pieces: one thread per position. Signed bytes (kKvQ8) are followed
// by a float32 scale per 32 elements: keys ordered by position, values by row.
#include "backend/gpu/params/kv_layer.h"
layout(constant_id = kSpecKvFormat) const int kKvFormat = 1;

// Index in the step's upload of the page table entry of the sequence's position 0.
int page_table_of(int group, int seq) {
  return step_count(kPageTableOffset + group) + seq * step_count(kPageTableStride + group) -
         Ints(step.first_column).data[group * step.max_seqs + seq];
}
int page_at(int table, int position) { return Ints(step.counts).data[table + position / kPageTokens]; }
uint64_t head_of(KvLayer kv, int page, int head) {
  return kv.pages + uint64_t(page) * kv.page_bytes + uint64_t(head * kv.head_bytes);
}

vec4 signed_bytes(uint word) {
  return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
              bitfieldExtract(int(word), 24, 8));
}
vec4 halves(uint a, uint b) { return vec4(unpackHalf2x16(a), unpackHalf2x16(b)); }

// Elements 32 * block .. + 31 of the key at a position of a page.
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  if (kKvFormat == kKvF32) {
    [[unroll]] for (int i = 0; i < 8; ++i) key[i] = FloatQuads(keys).data[(block * 8 + i) * kPageTokens + position];
  } else if (kKvFormat == kKvF16) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      uvec4 piece = Quads(keys).data[position * (k_dim / 8) + block * 4 + i];
      key[2 * i] = halves(piece.x, piece.y);
      key[2 * i + 1] = halves(piece.z, piece.w);
    }
  } else {
    float scale = Floats(keys + uint64_t(k_dim * kPageTokens)).data[block * kPageTokens + position];
    [[unroll]] for (int i = 0; i < 2; ++i) {
      uvec4 piece = Quads(keys).data[(block * 2 + i) * kPageTokens + position];
      [[unroll]] for (int j = 0; j < 4; ++j) key[4 * i + j] = signed_bytes(piece[j]) * scale;
    }
  }
}

// Elements i .. i + 3 of the value at a position of a page. v_dim is padded.
vec4 load_value(uint64_t values, int v_dim, int position, int i) {
  if (kKvFormat == kKvF32) return FloatQuads(values).data[(position * v_dim + i) / 4];
  if (kKvFormat == kKvF16) {
    uvec2 words = Pairs(values).data[(position * v_dim + i) / 4];
    return halves(words.x, words.y);
  }
  float scale = Floats(values + uint64_t(v_dim * kPageTokens)).data[position * (v_dim / 32) + i / 32];
  return signed_bytes(Words(values).data[(position * v_dim + i) / 4]) * scale;
}

// Rounds a non-negative float to the nearest f16. A compiler may remove packing followed by unpacking.
float as_half(float x) {
  if (x < 6.103515625e-5) return roundEven(x * 16777216.0) / 16777216.0;
  uint bits = floatBitsToUint(x);
  return uintBitsToFloat((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

// Encodes four elements in the KV cache format: float bits (kKvF32), f16 in two words, or signed bytes and their scale. Eight
// neighboring threads have a block of 32. REQUIRES: every thread of the workgroup calls.
uvec4 encode_kv_vec4(vec4 x) {
  if (kKvFormat == kKvF32) return floatBitsToUint(x);
  if (kKvFormat == kKvF16) return uvec4(packHalf2x16(x.xy), packHalf2x16(x.zw), 0, 0);
  vec4 magnitudes = abs(x);
  float max_abs = clustered_max(max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)), 8);
  precise float d = max_abs / 127.0;
  float inverse = d != 0 ? 1.0 / d : 0.0;
  vec4 q = clamp(x * inverse, -127.0, 127.0);
  ivec4 rounded = ivec4(sign(q) * floor(abs(q) + 0.5));  // half away from zero, as in Q8_0
  return uvec4(packed_bytes(rounded), floatBitsToUint(as_half(d)), 0, 0);
}

// Writes elements i .. i + 3 of a key or a value. dim is padded.
void store_kv_vec4(uint64_t dst, bool is_key, int dim, int position, int i, uvec4 encoded) {
  if (kKvFormat == kKvF32) {
    Quads(dst).data[is_key ? i / 4 * kPageTokens + position : (position * dim + i) / 4] = encoded;
  } else if (kKvFormat == kKvF16) {
    Pairs(dst).data[(position * dim + i) / 4] = encoded.xy;
  } else {
    Words(dst).data[is_key ? (i / 16 * kPageTokens + position) * 4 + i / 4 % 4 : (position * dim + i) / 4] = encoded.x;
    if (i % 32 == 0) {
      int scale_index = is_key ? i / 32 * kPageTokens + position : position * (dim / 32) + i / 32;
      Floats(dst + uint64_t(dim * kPageTokens)).data[scale_index] = uintBitsToFloat(encoded.y);
    }
  }
}
