// Q5_K: Q4_K with a fifth bit, in one word per quant group (bit e: element e). 5.5 bits per weight.
#include "k_quant_scales.glsl"
#define HEADER_BYTES 16
#define GROUP_BYTES 20
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
