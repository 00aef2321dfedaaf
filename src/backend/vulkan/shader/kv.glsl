// The paged KV cache of one layer: addresses of pages, and what its formats share. A file of kv_format/ defines
//   load_key_block(keys, k_dim, position, block, key)  elements 32 * block .. + 31 of the key at a position of a page
//   load_value(values, v_dim, position, i)             elements i .. i + 3 of the value at a position of a page
//   encode_kv_vec4(x)                                  four elements in the format; eight neighboring threads have a block of 32.
//                                                      REQUIRES: every thread of the workgroup calls
//   store_kv_vec4(dst, is_key, dim, position, i, encoded)  writes elements i .. i + 3 of a key or a value
// Dimensions are padded to 32. Values of a head are row-major within a page; so are f16 keys, as cooperative matrices load them.
// Other keys are a panel of 32 positions in 16-byte pieces: one thread per position. Quantized elements are followed by a float32
// scale per 32: keys ordered by position, values by row.
#include "backend/gpu/params/kv_layer.h"

// Index in the step's upload of the page table entry of the sequence's position 0.
int page_table_of(int group, int seq) {
  return step_count(kPageTableOffset + group) + seq * step_count(kPageTableStride + group) -
         Ints(step.first_column).data[group * step.max_seqs + seq];
}
int page_at(int table, int position) { return Ints(step.counts).data[table + position / kPageTokens]; }
uint64_t head_of(KvLayer kv, int page, int head) {
  return kv.pages + uint64_t(page) * kv.page_bytes + uint64_t(head * kv.head_bytes);
}

// Rounds a non-negative float to the nearest f16. A compiler may remove packing followed by unpacking.
float as_half(float x) {
  if (x < 6.103515625e-5) return roundEven(x * 16777216.0) / 16777216.0;
  uint bits = floatBitsToUint(x);
  return uintBitsToFloat((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

// Index of the scale of element i.
int kv_scale_index(bool is_key, int dim, int position, int i) {
  return is_key ? i / 32 * kPageTokens + position : position * (dim / 32) + i / 32;
}
