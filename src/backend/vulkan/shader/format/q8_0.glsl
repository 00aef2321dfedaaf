// Q8_0: signed 8-bit quants, one f16 scale per quant group. 8.5 bits per weight.
#define HEADER_BYTES 16
#define GROUP_BYTES 32
#define Q8_BLOCK 32
#define HAS_MIN 0
struct Header {
  uvec4 scales;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row)); }
float header_scale(Header h, int g) { return half_at(h.scales, g); }
struct Raw {
  uvec4 first, second;
};
Raw load_group(uint64_t segment, int row, int g) {
  int begin = HEADER_BYTES + g * GROUP_BYTES;
  return Raw(load_16(segment, begin, row), load_16(segment, begin + 16, row));
}
void unpack(Raw raw, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = int(raw.first[i]);
    w[i + 4] = int(raw.second[i]);
  }
}
