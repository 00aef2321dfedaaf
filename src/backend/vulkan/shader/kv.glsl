// The paged KV cache of one layer: addresses of pages, and what its formats share. A file of kv_format/ defines
//   kTransformsKeys                                    whether keys and queries get a Hadamard transform
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

// The Hadamard transform of a block of 32 elements, times a factor (tensor/hadamard.h).
const float kKeyFactor = 0.25, kQueryFactor = 0.125;
void hadamard_32(inout vec4 x[8], float factor) {
  [[unroll]] for (int i = 0; i < 8; ++i) {
    precise vec4 a = vec4(x[i].x + x[i].y, x[i].x - x[i].y, x[i].z + x[i].w, x[i].z - x[i].w);
    precise vec4 b = vec4(a.x + a.z, a.y + a.w, a.x - a.z, a.y - a.w);
    x[i] = b;
  }
  [[unroll]] for (int step = 1; step < 8; step *= 2) {
    [[unroll]] for (int i = 0; i < 8; ++i) {
      if ((i & step) != 0) continue;
      precise vec4 sum = x[i] + x[i + step];
      precise vec4 difference = x[i] - x[i + step];
      x[i] = sum;
      x[i + step] = difference;
    }
  }
  [[unroll]] for (int i = 0; i < 8; ++i) x[i] *= factor;
}

// Index of the scale of element i.
int kv_scale_index(bool is_key, int dim, int position, int i) {
  return is_key ? i / 32 * kPageTokens + position : position * (dim / 32) + i / 32;
}
