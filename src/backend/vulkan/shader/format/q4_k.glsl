// Q4_K: 4-bit quants; a 6-bit scale and minimum per quant group, d and dmin per segment. 4.5 bits per weight.
#include "k_quant_scales.glsl"
#define HEADER_BYTES 16
#define GROUP_BYTES 16
#define Raw uvec4
#define NIBBLES
Raw load_group(uint64_t segment, int row, int g) {
  return load_16(segment, HEADER_BYTES + g * GROUP_BYTES, row);
}
void unpack(Raw n, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = int(n[i] & 0x0F0F0F0Fu);
    w[i + 4] = int(n[i] >> 4 & 0x0F0F0F0Fu);
  }
}
