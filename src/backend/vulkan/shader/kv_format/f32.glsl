// float32.
#include "kv.glsl"
const bool kTransformsKeys = false;
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  [[unroll]] for (int i = 0; i < 8; ++i) key[i] = FloatQuads(keys).data[(block * 8 + i) * kPageTokens + position];
}
vec4 load_value(uint64_t values, int v_dim, int position, int i) { return FloatQuads(values).data[(position * v_dim + i) / 4]; }
uvec4 encode_kv_vec4(vec4 x) { return floatBitsToUint(x); }
void store_kv_vec4(uint64_t dst, bool is_key, int dim, int position, int i, uvec4 encoded) {
  Quads(dst).data[is_key ? i / 4 * kPageTokens + position : (position * dim + i) / 4] = encoded;
}
