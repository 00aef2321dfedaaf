// F32, four per 16-byte piece.
#define HEADER_BYTES 0
#define GROUP_BYTES 128
#define Q8_BLOCK 0
#define PIECE_ELEMS 4
float element(uvec4 piece, int k) { return uintBitsToFloat(piece[k]); }
