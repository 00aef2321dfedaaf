// How a matrix lies on the device. 32 rows form a panel; their inputs are cut into segments of 256 and these into groups
// of 32. A segment is, for its 32 rows together: the headers (scales), then its groups; both in pieces of 4, 8 or 16
// bytes a row, the rows' pieces side by side, so that 32 threads with a row each load whole lines. The last segment is
// filled up with zeros. A format file defines the sizes, load_header(), load_group() (the bytes as they lie) and expand():
// the group's numbers as words of four signed bytes.
#extension GL_EXT_integer_dot_product : require

struct Matrix {
  uint64_t bytes, panel_bytes, matrix_bytes;
  int n_in, n_out, n_segments, n_splits;  // n_splits: runs of segments that are summed alone first
};

uvec4 load_16(uint64_t segment, int begin, int row) { return Quads(segment + uint64_t(kPanelRows * begin)).at[row]; }
uvec2 load_8(uint64_t segment, int begin, int row) { return Pairs(segment + uint64_t(kPanelRows * begin)).at[row]; }
uint load_4(uint64_t segment, int begin, int row) { return Words(segment + uint64_t(kPanelRows * begin)).at[row]; }

// Subtracts `offset` from each byte. REQUIRES: bytes below 128.
int minus(uint bytes, uint offset) { return int(((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u); }

// Bits 0..3 of `bits`, each in bit 4 of its own byte.
uint spread_fifth(uint bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }

float half_of(uvec4 halves, int i) {
  vec2 pair = unpackHalf2x16(halves[i / 2]);
  return (i & 1) == 0 ? pair.x : pair.y;
}

int signed_byte(uint word, int i) { return bitfieldExtract(int(word), 8 * i, 8); }

// The level of a nibble, from a table of 16 signed bytes in four words.
uint level(uvec4 table, uint nibble) {
  uint word = (nibble & 8u) != 0u ? ((nibble & 4u) != 0u ? table.w : table.z) : ((nibble & 4u) != 0u ? table.y : table.x);
  return word >> 8u * (nibble & 3u) & 255u;
}
int levels(uvec4 table, uint nibbles) {  // of the low half of each byte
  return int(level(table, nibbles & 15u) | level(table, nibbles >> 8 & 15u) << 8 |
             level(table, nibbles >> 16 & 15u) << 16 | level(table, nibbles >> 24 & 15u) << 24);
}
const uvec4 kIq4Levels = uvec4(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
const uvec4 kFp4Levels = uvec4(0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu);  // E2M1, doubled
