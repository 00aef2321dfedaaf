// Q6_K: 6-bit quants minus 32; a signed 8-bit scale per half group, d per segment. The top two bits of elements 4i..4i+3 are
// at bit 2i of the bytes of a word (elements 0-15), those of 16-31 in a second word. 6.63 bits per weight.
#include "signed_scales.glsl"
#define GROUP_BYTES 24
struct Raw {
  uvec4 nibbles;
  uvec2 top;
};
Raw load_group(uint64_t segment, int row, int g) {
  int begin = HEADER_BYTES + g * GROUP_BYTES;
  return Raw(load_16(segment, begin, row), load_8(segment, begin + 16, row));
}
void unpack(Raw raw, out int w[8]) {
  uvec4 n = raw.nibbles;
  uvec2 top = raw.top;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = subtract_bytes((n[i] & 0x0F0F0F0Fu) | (top.x >> 2 * i & 0x03030303u) << 4, 32u);
    w[i + 4] = subtract_bytes((n[i] >> 4 & 0x0F0F0F0Fu) | (top.y >> 2 * i & 0x03030303u) << 4, 32u);
  }
}
