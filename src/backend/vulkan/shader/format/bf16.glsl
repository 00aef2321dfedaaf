// BF16, eight per 16-byte piece.
#define HEADER_BYTES 0
#define GROUP_BYTES 64
#define Q8_BLOCK 0
#define PIECE_ELEMS 8
float element(uvec4 piece, int k) { return uintBitsToFloat((k & 1) == 0 ? piece[k / 2] << 16 : piece[k / 2] & 0xFFFF0000u); }
