// Q3_K: 3-bit quants minus 4; a signed 8-bit scale per half group, d per segment. The low two bits of elements 4i..4i+3 are at
// bit 2i of the bytes of a word (elements 0-15), those of 16-31 in a second word; the top bits of elements 4i..4i+3 are at bit i
// of the bytes of a third. 3.63 bits per weight.
#include "signed_scales.glsl"
#define GROUP_BYTES 12
struct Raw {
  uvec2 low;
  uint top;
};
Raw load_group(uint64_t segment, int row, int g) {
  int begin = HEADER_BYTES + g * GROUP_BYTES;
  return Raw(load_8(segment, begin, row), load_4(segment, begin + 8, row));
}
void unpack(Raw raw, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = subtract_bytes((raw.low.x >> 2 * i & 0x03030303u) | (raw.top >> i & 0x01010101u) << 2, 4u);
    w[i + 4] = subtract_bytes((raw.low.y >> 2 * i & 0x03030303u) | (raw.top >> (i + 4) & 0x01010101u) << 2, 4u);
  }
}
