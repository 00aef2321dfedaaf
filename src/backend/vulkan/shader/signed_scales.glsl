// Header of Q3_K and Q6_K: a signed 8-bit scale per half group, d per segment.
#define HEADER_BYTES 20
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
