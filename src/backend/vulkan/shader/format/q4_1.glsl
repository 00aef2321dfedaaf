// Q4_1: 4-bit quants, f16 scale and minimum per quant group. 5 bits per weight.
#define HEADER_BYTES 32
#define GROUP_BYTES 16
#define Q8_BLOCK 32
#define HAS_MIN 1
struct Header {
  uvec4 scales, mins;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row), load_16(segment, 16, row)); }
float header_scale(Header h, int g) { return half_at(h.scales, g); }
float header_min(Header h, int g) { return half_at(h.mins, g); }
#define Raw uvec4
Raw load_group(uint64_t segment, int row, int g) {
  return load_16(segment, HEADER_BYTES + g * GROUP_BYTES, row);
}
void unpack(Raw n, out int w[8]) {
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = int(n[i] & 0x0F0F0F0Fu);
    w[i + 4] = int(n[i] >> 4 & 0x0F0F0F0Fu);
  }
}
