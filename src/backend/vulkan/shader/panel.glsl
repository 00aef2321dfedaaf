// Layout of a packed weight matrix. 32 rows form a panel; their inputs are cut into segments of 256 and these into quant groups
// of 32. A segment holds, for all 32 rows: the headers (scales), then the groups, in pieces of 4, 8 or 16 bytes per row. The
// rows' pieces are interleaved, so that 32 threads with one row each make coalesced loads. The last segment is zero-padded.
// A format file defines the sizes, load_header(), load_group() (raw bytes) and unpack() (words of four signed bytes).
#include "backend/vulkan/params/matmul.h"
#extension GL_EXT_integer_dot_product : require

uvec4 load_16(uint64_t segment, int begin, int row) { return Quads(segment + uint64_t(kPanelRows * begin)).data[row]; }
uvec2 load_8(uint64_t segment, int begin, int row) { return Pairs(segment + uint64_t(kPanelRows * begin)).data[row]; }
uint load_4(uint64_t segment, int begin, int row) { return Words(segment + uint64_t(kPanelRows * begin)).data[row]; }

// Subtracts `offset` from each byte. REQUIRES: bytes below 128.
int subtract_bytes(uint bytes, uint offset) { return int(((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u); }

// Moves bits 0..3 of `bits` to bit 4 of bytes 0..3.
uint scatter_fifth_bits(uint bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }

float half_at(uvec4 halves, int i) {
  vec2 pair = unpackHalf2x16(halves[i / 2]);
  return (i & 1) == 0 ? pair.x : pair.y;
}

int signed_byte(uint word, int i) { return bitfieldExtract(int(word), 8 * i, 8); }

// Codebook lookup of a nibble; the table has 16 signed bytes.
uint codebook_value(uvec4 table, uint nibble) {
  uint word = (nibble & 8u) != 0u ? ((nibble & 4u) != 0u ? table.w : table.z) : ((nibble & 4u) != 0u ? table.y : table.x);
  return word >> 8u * (nibble & 3u) & 255u;
}
int codebook_values(uvec4 table, uint nibbles) {  // of the low nibble of each byte
  return int(codebook_value(table, nibbles & 15u) | codebook_value(table, nibbles >> 8 & 15u) << 8 |
             codebook_value(table, nibbles >> 16 & 15u) << 16 | codebook_value(table, nibbles >> 24 & 15u) << 24);
}
const uvec4 kIq4Codebook = uvec4(0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
const uvec4 kFp4Codebook = uvec4(0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu);  // E2M1, doubled
