// Q5_1: 5-bit quants, f16 scale and minimum per quant group; fifth bits in a separate word. 6 bits per weight.
#define HEADER_BYTES 32
#define GROUP_BYTES 20
#define Q8_BLOCK 32
#define HAS_MIN 1
struct Header {
  uvec4 scales, mins;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row), load_16(segment, 16, row)); }
float header_scale(Header h, int g) { return half_at(h.scales, g); }
float header_min(Header h, int g) { return half_at(h.mins, g); }
struct Raw {
  uvec4 nibbles;
  uint fifth;
};
Raw load_group(uint64_t segment, int row, int g) {
  int begin = HEADER_BYTES + g * GROUP_BYTES;
  return Raw(load_16(segment, begin, row), load_4(segment, begin + 16, row));
}
void unpack(Raw raw, out int w[8]) {
  uvec4 n = raw.nibbles;
  uint fifth = raw.fifth;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    w[i] = int((n[i] & 0x0F0F0F0Fu) | scatter_fifth_bits(fifth >> 4 * i));
    w[i + 4] = int((n[i] >> 4 & 0x0F0F0F0Fu) | scatter_fifth_bits(fifth >> (16 + 4 * i)));
  }
}
