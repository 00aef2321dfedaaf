// float16; keys are rows too.
#include "kv.glsl"
const bool kTransformsKeys = false;
vec4 halves(uint a, uint b) { return vec4(unpackHalf2x16(a), unpackHalf2x16(b)); }
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    uvec4 piece = Quads(keys).data[position * (k_dim / 8) + block * 4 + i];
    key[2 * i] = halves(piece.x, piece.y);
    key[2 * i + 1] = halves(piece.z, piece.w);
  }
}
vec4 load_value(uint64_t values, int v_dim, int position, int i) {
  uvec2 words = Pairs(values).data[(position * v_dim + i) / 4];
  return halves(words.x, words.y);
}
uvec4 encode_kv_vec4(vec4 x) { return uvec4(packHalf2x16(x.xy), packHalf2x16(x.zw), 0, 0); }
void store_kv_vec4(uint64_t dst, bool is_key, int dim, int position, int i, uvec4 encoded) {
  Pairs(dst).data[(position * dim + i) / 4] = encoded.xy;
}
