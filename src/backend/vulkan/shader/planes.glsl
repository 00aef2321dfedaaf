// Formats with a scale for 256 inputs as int8 matrices: weights times the integer scale of their quant group are split into a
// low and a high byte plane (value = low + kHighFactor * high), so that a segment is one integer sum per plane.
#ifdef NIBBLES
// The low and the high three bits of the scale: products with a nibble fit into seven bits.
const int kHighFactor = 8;
void split_group(Raw n, Header h, int g, out uint low[8], out uint high[8]) {
  uint scale = uint(header_scale(h, g));
  [[unroll]] for (int i = 0; i < 8; ++i) {
    uint nibbles = n[i % 4] >> 4 * (i / 4) & 0x0F0F0F0Fu;
    low[i] = nibbles * (scale & 7u);
    high[i] = nibbles * (scale >> 3);
  }
}
#else
// Products have 13 bits and a sign; the low plane has their low seven bits, the high plane the rest. Two products share a
// word; adding 8192 makes them non-negative.
const int kHighFactor = 128;
void split_group(Raw raw, Header h, int g, out uint low[8], out uint high[8]) {
  int w[8];
  unpack(raw, w);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    int scale = HALF_GROUP_SCALES != 0 ? header_scale(h, 2 * g + i / 4) : header_scale(h, g);
    uint shifted = uint(w[i]) ^ 0x80808080u, offset = uint(8192 - 128 * scale) * 0x00010001u;
    uint even = (shifted & 0x00FF00FFu) * uint(scale) + offset, odd = (shifted >> 8 & 0x00FF00FFu) * uint(scale) + offset;
    low[i] = (even & 0x007F007Fu) | (odd & 0x007F007Fu) << 8;
    high[i] = uint(subtract_bytes((even >> 7 & 0x007F007Fu) | (odd << 1 & 0x7F007F00u), 64u));
  }
}
#endif

#if HAS_MIN
// Low and high parts of four sums of inputs, with 6 low bits: exact in f16.
void split_sums(ivec4 sums, out uvec2 low, out uvec2 high) {
  ivec4 lows = ((sums + 32) & 63) - 32;
  vec4 l = vec4(lows), h = vec4(sums - lows);
  low = uvec2(packHalf2x16(l.xy), packHalf2x16(l.zw));
  high = uvec2(packHalf2x16(h.xy), packHalf2x16(h.zw));
}
#endif
