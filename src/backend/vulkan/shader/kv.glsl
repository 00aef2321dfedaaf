// Keys and values of one layer in its pages. A head's values in a page are rows; so are its keys of halves, as cooperative
// matrices are loaded. Other keys are a panel of 32 positions in pieces of 16 bytes, so that a thread is a position. Signed
// bytes (kKvQ8) are followed by a float32 scale for each 32: keys' by position, values' by row.
layout(constant_id = 16) const int kKv = 1;

const int kKvF32 = 0;
const int kKvF16 = 1;
const int kKvQ8 = 2;

struct KvLayer {
  uint64_t pages, page_bytes;
  int head_bytes, value_begin;  // of a head; where its values begin in it
  int kv_heads, k_dim, v_dim, group;
};

// Where the page of a sequence's position 0 would stand in the step's upload; the page that holds `position`.
int table_of(int group, int seq) {
  return step_count(kEntries + group) + seq * step_count(kStride + group) - Ints(step.first_column).at[group * step.max_seqs + seq];
}
int page_at(int table, int position) { return Ints(step.counts).at[table + position / kPagePositions]; }
uint64_t head_of(KvLayer kv, int page, int head) {
  return kv.pages + uint64_t(page) * kv.page_bytes + uint64_t(head * kv.head_bytes);
}

vec4 signed_bytes(uint word) {
  return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
              bitfieldExtract(int(word), 24, 8));
}
vec4 halves(uint a, uint b) { return vec4(unpackHalf2x16(a), unpackHalf2x16(b)); }

// Numbers 32 * block .. + 31 of the key at a position of a page.
void load_key_block(uint64_t keys, int k_dim, int position, int block, out vec4 key[8]) {
  if (kKv == kKvF32) {
    [[unroll]] for (int i = 0; i < 8; ++i) key[i] = FloatQuads(keys).at[(block * 8 + i) * kPagePositions + position];
  } else if (kKv == kKvF16) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
      uvec4 piece = Quads(keys).at[position * (k_dim / 8) + block * 4 + i];
      key[2 * i] = halves(piece.x, piece.y);
      key[2 * i + 1] = halves(piece.z, piece.w);
    }
  } else {
    float scale = Floats(keys + uint64_t(k_dim * kPagePositions)).at[block * kPagePositions + position];
    [[unroll]] for (int i = 0; i < 2; ++i) {
      uvec4 piece = Quads(keys).at[(block * 2 + i) * kPagePositions + position];
      [[unroll]] for (int j = 0; j < 4; ++j) key[4 * i + j] = signed_bytes(piece[j]) * scale;
    }
  }
}

// Numbers i .. i + 3 of the value at a position of a page. v_dim is padded.
vec4 load_value(uint64_t values, int v_dim, int position, int i) {
  if (kKv == kKvF32) return FloatQuads(values).at[(position * v_dim + i) / 4];
  if (kKv == kKvF16) {
    uvec2 two = Pairs(values).at[(position * v_dim + i) / 4];
    return halves(two.x, two.y);
  }
  float scale = Floats(values + uint64_t(v_dim * kPagePositions)).at[position * (v_dim / 32) + i / 32];
  return signed_bytes(Words(values).at[(position * v_dim + i) / 4]) * scale;
}

// The nearest half of a number that is not negative. A compiler may leave out packing and unpacking.
float as_half(float x) {
  if (x < 6.103515625e-5) return roundEven(x * 16777216.0) / 16777216.0;
  uint bits = floatBitsToUint(x);
  return uintBitsToFloat((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

// Numbers as the cache keeps them: of four, the bits (kKvF32), halves in two words, or signed bytes and their scale. Eight
// neighbouring threads have a block of 32. REQUIRES: every thread of the workgroup calls.
uvec4 kept_four(vec4 x) {
  if (kKv == kKvF32) return floatBitsToUint(x);
  if (kKv == kKvF16) return uvec4(packHalf2x16(x.xy), packHalf2x16(x.zw), 0, 0);
  vec4 sizes = abs(x);
  float largest = lanes_max(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)), 8);
  precise float d = largest / 127.0;
  float inverse = d != 0 ? 1.0 / d : 0.0;
  vec4 q = clamp(x * inverse, -127.0, 127.0);
  ivec4 whole = ivec4(sign(q) * floor(abs(q) + 0.5));  // half away from zero, as Q8_0 is
  return uvec4(packed_bytes(whole), floatBitsToUint(as_half(d)), 0, 0);
}

// Writes numbers i .. i + 3 of a key or a value. dim is padded.
void store_four(uint64_t at, bool is_key, int dim, int position, int i, uvec4 kept) {
  if (kKv == kKvF32) {
    Quads(at).at[is_key ? i / 4 * kPagePositions + position : (position * dim + i) / 4] = kept;
  } else if (kKv == kKvF16) {
    Pairs(at).at[(position * dim + i) / 4] = kept.xy;
  } else {
    Words(at).at[is_key ? (i / 16 * kPagePositions + position) * 4 + i / 4 % 4 : (position * dim + i) / 4] = kept.x;
    if (i % 32 == 0) {
      int place = is_key ? i / 32 * kPagePositions + position : position * (dim / 32) + i / 32;
      Floats(at + uint64_t(dim * kPagePositions)).at[place] = uintBitsToFloat(kept.y);
    }
  }
}
