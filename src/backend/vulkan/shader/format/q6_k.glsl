// Q6_K: 6-bit quants minus 32; a signed 8-bit scale per half group, d per segment. The top two bits of elements 4i..4i+3 are
// at bit 2i of the bytes of a word (elements 0-15), those of 16-31 in a second word. 6.63 bits per weight.
#define HEADER_BYTES 20
#define GROUP_BYTES 24
#define Q8_BLOCK 256
#define HAS_MIN 0
#define HALF_GROUP_SCALES 1
struct Header {
  uvec4 scales;
  uint d_bits;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row), load_4(segment, 16, row)); }
float header_d(Header h) { return unpackHalf2x16(h.d_bits).x; }
int header_scale(Header h, int half_group) {  // selects instead of a dynamic index, which would spill to memory
  uint word = half_group < 8 ? (half_group < 4 ? h.scales.x : h.scales.y) : (half_group < 12 ? h.scales.z : h.scales.w);
  return signed_byte(word, half_group & 3);
}
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
