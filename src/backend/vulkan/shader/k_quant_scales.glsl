// Header of Q4_K and Q5_K: d, dmin, and eight 6-bit scales and minima in 12 bytes.
#define Q8_BLOCK 256
#define HAS_MIN 1
#define HALF_GROUP_SCALES 0
struct Header {
  uvec4 bytes;
};
Header load_header(uint64_t segment, int row) { return Header(load_16(segment, 0, row)); }
float header_d(Header h) { return unpackHalf2x16(h.bytes.x).x; }
float header_dmin(Header h) { return unpackHalf2x16(h.bytes.x).y; }
int header_scale(Header h, int g) {
  if (g < 4) return int(h.bytes.y >> 8 * g & 63u);
  return int((h.bytes.w >> 8 * (g - 4) & 15u) | (h.bytes.y >> (8 * (g - 4) + 6) & 3u) << 4);
}
int header_min(Header h, int g) {
  if (g < 4) return int(h.bytes.z >> 8 * g & 63u);
  return int((h.bytes.w >> (8 * (g - 4) + 4) & 15u) | (h.bytes.z >> (8 * (g - 4) + 6) & 3u) << 4);
}
