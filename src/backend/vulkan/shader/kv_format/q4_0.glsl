// Four bits minus 8, times a scale: the elements of Q4_0, of keys after transform_head(). A word has eight elements in order, the first in its lowest bits.
#include "kv.glsl"
const bool kTransformsKeys = true;
vec4 four_elements(uint bits) { return vec4(ivec4(uvec4(bits, bits >> 4, bits >> 8, bits >> 12) & 15u) - 8); }
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  float scale = Floats(keys + uint64_t(k_dim / 2 * kPageTokens)).data[block * kPageTokens + position];
  uvec4 piece = Quads(keys).data[block * kPageTokens + position];
  [[unroll]] for (int i = 0; i < 4; ++i) {
    key[2 * i] = four_elements(piece[i]) * scale;
    key[2 * i + 1] = four_elements(piece[i] >> 16) * scale;
  }
}
vec4 load_value(uint64_t values, int v_dim, int position, int i) {
  float scale = Floats(values + uint64_t(v_dim / 2 * kPageTokens)).data[position * (v_dim / 32) + i / 32];
  return four_elements(Words(values).data[(position * v_dim + i) / 8] >> 16 * (i / 4 % 2)) * scale;
}
// A word of eight elements, the same in both threads that have them; then the scale. As in Q4_0 the element of largest magnitude
// becomes -8.
uvec4 encode_kv_vec4(vec4 x) {
  vec4 positives = max(x, 0.0), negatives = max(-x, 0.0);
  float positive = clustered_max(max(max(positives.x, positives.y), max(positives.z, positives.w)), 8);
  float negative = clustered_max(max(max(negatives.x, negatives.y), max(negatives.z, negatives.w)), 8);
  precise float d = positive > negative ? positive / -8.0 : negative / 8.0;
  precise float inverse = d != 0 ? 1.0 / d : 0.0;
  precise vec4 scaled = x * inverse;
  precise vec4 shifted = scaled + 8.5;
  ivec4 q = ivec4(clamp(floor(shifted), 0.0, 15.0));
  int bits = (q.x | q.y << 4 | q.z << 8 | q.w << 12) << 16 * (lane_id() % 2);
  int word = clustered_sum_int(bits, 2);
  float scale = as_half(abs(d));
  return uvec4(uint(word), floatBitsToUint(d < 0 ? -scale : scale), 0, 0);
}
void store_kv_vec4(uint64_t dst, bool is_key, int dim, int position, int i, uvec4 encoded) {
  if (i % 8 == 0) {
    Words(dst).data[is_key ? (i / 32 * kPageTokens + position) * 4 + i % 32 / 8 : (position * dim + i) / 8] = encoded.x;
  }
  if (i % 32 != 0) return;
  Floats(dst + uint64_t(dim / 2 * kPageTokens)).data[kv_scale_index(is_key, dim, position, i)] = uintBitsToFloat(encoded.y);
}
