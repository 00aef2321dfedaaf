// Signed bytes times a scale: the elements of Q8_0.
#include "kv.glsl"
const bool kTransformsKeys = false;
vec4 signed_bytes(uint word) {
  return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
              bitfieldExtract(int(word), 24, 8));
}
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  float scale = Floats(keys + uint64_t(k_dim * kPageTokens)).data[block * kPageTokens + position];
  [[unroll]] for (int i = 0; i < 2; ++i) {
    uvec4 piece = Quads(keys).data[(block * 2 + i) * kPageTokens + position];
    [[unroll]] for (int j = 0; j < 4; ++j) key[4 * i + j] = signed_bytes(piece[j]) * scale;
  }
}
vec4 load_value(uint64_t values, int v_dim, int position, int i) {
  float scale = Floats(values + uint64_t(v_dim * kPageTokens)).data[position * (v_dim / 32) + i / 32];
  return signed_bytes(Words(values).data[(position * v_dim + i) / 4]) * scale;
}
// The bytes, then their scale.
uvec4 encode_kv_vec4(vec4 x) {
  vec4 magnitudes = abs(x);
  float max_abs = clustered_max(max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)), 8);
  precise float d = max_abs / 127.0;
  float inverse = d != 0 ? 1.0 / d : 0.0;
  vec4 q = clamp(x * inverse, -127.0, 127.0);
  ivec4 rounded = ivec4(sign(q) * floor(abs(q) + 0.5));  // half away from zero, as in Q8_0
  return uvec4(packed_bytes(rounded), floatBitsToUint(as_half(d)), 0, 0);
}
void store_kv_vec4(uint64_t dst, bool is_key, int dim, int position, int i, uvec4 encoded) {
  Words(dst).data[is_key ? (i / 16 * kPageTokens + position) * 4 + i / 4 % 4 : (position * dim + i) / 4] = encoded.x;
  if (i % 32 != 0) return;
  Floats(dst + uint64_t(dim * kPageTokens)).data[kv_scale_index(is_key, dim, position, i)] = uintBitsToFloat(encoded.y);
}
