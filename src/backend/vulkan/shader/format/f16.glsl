// F16: halves, eight a piece.
#define HEADER_BYTES 0
#define GROUP_BYTES 64
#define ROUNDED_BLOCK 0
#define PIECE_ELEMS 8
float element(uvec4 piece, int k) { return half_of(piece, k); }
