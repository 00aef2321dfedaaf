// MXFP4: 4-bit floats, one power of two for each group. 4.25 bits a weight.
#define HEADER_BYTES 8
#define GROUP_BYTES 16
#define ROUNDED_BLOCK 32
#define HAS_MIN 0
struct Header {
  uvec2 exponents;
};
Header load_header(uint64_t segment, int row) { return Header(load_8(segment, 0, row)); }
// Half of 2^(e - 127), as the levels are doubled; subnormal for e < 2.
float header_scale(Header h, int g) {
  uint e = (g < 4 ? h.exponents.x : h.exponents.y) >> 8 * (g & 3) & 255u;
  return uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
}
#define Raw uvec4
Raw load_group(uint64_t segment, int row, int g) {
  return load_16(segment, HEADER_BYTES + g * GROUP_BYTES, row);
}
void expand(Raw n, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = levels(kFp4Levels, n[i]);
    w[i + 4] = levels(kFp4Levels, n[i] >> 4);
  }
}
