// MXFP4: E2M1 values, one power-of-two scale (E8M0) per quant group. 4.25 bits per weight.
#define HEADER_BYTES 8
#define GROUP_BYTES 16
#define Q8_BLOCK 32
#define HAS_MIN 0
struct Header {
  uvec2 exponents;
};
Header load_header(uint64_t segment, int row) { return Header(load_8(segment, 0, row)); }
// Half of 2^(e - 127), because the codebook is doubled; subnormal for e < 2.
float header_scale(Header h, int g) {
  uint e = (g < 4 ? h.exponents.x : h.exponents.y) >> 8 * (g & 3) & 255u;
  return uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
}
#define Raw uvec4
Raw load_group(uint64_t segment, int row, int g) {
  return load_16(segment, HEADER_BYTES + g * GROUP_BYTES, row);
}
void unpack(Raw n, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = codebook_values(kFp4Codebook, n[i]);
    w[i + 4] = codebook_values(kFp4Codebook, n[i] >> 4);
  }
}
