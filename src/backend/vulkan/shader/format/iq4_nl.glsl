// IQ4_NL: 4-bit indices into a codebook, one f16 scale per quant group. 4.5 bits per weight.
#define HEADER_BYTES 16
#define GROUP_BYTES 16
#define Q8_BLOCK 32
#define HAS_MIN 0
struct Header {
  uvec4 scales;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row)); }
float header_scale(Header h, int g) { return half_at(h.scales, g); }
#define Raw uvec4
Raw load_group(uint64_t segment, int row, int g) {
  return load_16(segment, HEADER_BYTES + g * GROUP_BYTES, row);
}
void unpack(Raw n, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = codebook_values(kIq4Codebook, n[i]);
    w[i + 4] = codebook_values(kIq4Codebook, n[i] >> 4);
  }
}
