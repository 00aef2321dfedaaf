// Norm and RoPE (each optional) of one q, k or v head. One warp per head.
#include "backend/vulkan/params/attention.h"
layout(constant_id = kSpecHeadSegments) const int kHeadSegments = 1;  // segments of 256 elements per head
layout(constant_id = kSpecHeadFloats) const int kHeadFloats = 2048;  // capacity of head_values; 1: unused

shared float head_values[kHeadFloats];

const int kLanePairs = kHeadSegments * kSegmentElems / 64;  // RoPE pairs of a head per lane
Vec8 head_weights[kHeadSegments];
vec2 head_cos_sin[kLanePairs];

// Loads that do not depend on the head's values.
void prefetch_head(HeadInput part, int token, int position, bool has_head) {
  int past_end = part.dim + 8;
  [[unroll]] for (int i = 0; i < kHeadSegments; ++i) {
    int offset = i * kSegmentElems + lane_id() * 8;
    head_weights[i] = Vec8(vec4(1), vec4(1));
    if (part.norm_weight != 0ul) head_weights[i] = load_vec8(part.norm_weight, has_head ? offset : past_end, part.dim);
  }
  if (!has_head || part.rope.coarse == 0ul) return;
  int scaling = rope_scaling(part.rope, token);
  [[unroll]] for (int k = 0; k < kLanePairs; ++k) {
    int i = k * 32 + lane_id();
    if (i < part.rope.n_pairs) head_cos_sin[k] = rope_cos_sin(part.rope, scaling, position, i);
  }
}

// Stores to the warp's part of head_values; elements past `dim` are zero. Warps without a head (!has_head) take part in
// barriers only. REQUIRES: prefetch_head().
void prepare_head(HeadInput part, int t, int head, bool has_head) {
  uint64_t x = part.x + uint64_t((t * part.n_heads + head) * part.stride) * 4ul;
  int base = warp_id() * kHeadSegments * kSegmentElems, past_end = part.dim + 8;
  Vec8 segments[kHeadSegments];
  float sum = 0;
  [[unroll]] for (int i = 0; i < kHeadSegments; ++i) {
    int offset = i * kSegmentElems + lane_id() * 8;
    segments[i] = load_vec8_coherent(x, has_head ? offset : past_end, part.dim);
    sum = sum_squares(segments[i], sum);
  }
  sum = clustered_sum(sum, 32);
  float factor = rms_factor(sum, part.dim, part.eps);
  [[unroll]] for (int i = 0; i < kHeadSegments; ++i) {
    int offset = i * kSegmentElems + lane_id() * 8;
    if (part.is_normed != 0) {
      precise vec4 a = segments[i].a * factor;
      precise vec4 b = segments[i].b * factor;
      if (part.norm_weight != 0ul) {
        a = a * head_weights[i].a;
        b = b * head_weights[i].b;
      }
      segments[i] = Vec8(a, b);
    }
    [[unroll]] for (int k = 0; k < 4; ++k) {
      head_values[base + offset + k] = segments[i].a[k];
      head_values[base + offset + 4 + k] = segments[i].b[k];
    }
  }
  barrier();
  if (has_head && part.rope.coarse != 0ul) {
    [[unroll]] for (int k = 0; k < kLanePairs; ++k) {
      int i = k * 32 + lane_id();
      if (i >= part.rope.n_pairs) break;
      int first = base + (part.rope.adjacent != 0 ? 2 * i : i);
      int second = part.rope.adjacent != 0 ? first + 1 : first + part.rope.n_pairs;
      vec2 y = rotate_pair(vec2(head_values[first], head_values[second]), head_cos_sin[k]);
      head_values[first] = y.x;
      head_values[second] = y.y;
    }
  }
  barrier();
}

vec4 head_vec4(int i) {
  int offset = warp_id() * kHeadSegments * kSegmentElems + i;
  return vec4(head_values[offset], head_values[offset + 1], head_values[offset + 2], head_values[offset + 3]);
}

// The Hadamard transform of the warp's head, if `is_transformed`. REQUIRES: every thread of the workgroup calls.
void transform_head(int dim, float factor, bool is_transformed) {
  for (int i = lane_id() * 32; is_transformed && i < dim; i += 32 * 32) {
    vec4 x[8];
    [[unroll]] for (int k = 0; k < 8; ++k) x[k] = head_vec4(i + 4 * k);
    hadamard_32(x, factor);
    [[unroll]] for (int k = 0; k < 32; ++k) head_values[warp_id() * kHeadSegments * kSegmentElems + i + k] = x[k / 4][k % 4];
  }
  barrier();
}

// Writes the warp's prepared head to the KV cache page at `dst`. REQUIRES: every thread of the workgroup calls.
void store_head(uint64_t dst, bool is_key, int dim, int position, bool has_head) {
  if (kTransformsKeys) transform_head(dim, kKeyFactor, is_key && has_head);
  for (int first = 0; first < kHeadSegments * kSegmentElems; first += 128) {
    int i = first + lane_id() * 4;
    uvec4 encoded = encode_kv_vec4(head_vec4(i));
    if (has_head && i < dim) store_kv_vec4(dst, is_key, dim, position % kPageTokens, i, encoded);
  }
}
