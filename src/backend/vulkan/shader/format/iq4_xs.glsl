// IQ4_XS: 4-bit indices into a codebook; a 6-bit scale minus 32 per quant group, d per segment. 4.25 bits per weight.
#define HEADER_BYTES 8
#define GROUP_BYTES 16
#define Q8_BLOCK 256
#define HAS_MIN 0
#define HALF_GROUP_SCALES 0
struct Header {
  uvec2 bytes;
};
Header load_header(uint64_t segment, int row) { return Header(load_8(segment, 0, row)); }
float header_d(Header h) { return unpackHalf2x16(h.bytes.x).x; }
int header_scale(Header h, int g) { return int((h.bytes.y >> 4 * g & 15u) | (h.bytes.x >> (16 + 2 * g) & 3u) << 4) - 32; }
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
