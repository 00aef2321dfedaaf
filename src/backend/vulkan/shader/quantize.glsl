// Rows as eight elements per lane, one segment of 256 per warp: load, norm, quantize to 8 bits. Every kernel uses these, so that
// results are bit-identical.
#include "backend/vulkan/params/matmul.h"
layout(constant_id = kSpecUnalignedRows) const int kUnalignedRows = 1;  // 0: row lengths are multiples of 4

struct Vec8 {
  vec4 a, b;
};

// Elements past the row's end are zero. REQUIRES: offset % 8 == 0.
#define LOAD_VEC8(name, floats, vec4s)                                          \
  Vec8 name(uint64_t row, int offset, int width) {                              \
    Vec8 x = Vec8(vec4(0), vec4(0));                                            \
    if (kUnalignedRows == 0 || (width & 3) == 0) {                              \
      if (offset + 4 <= width) x.a = vec4s(row).data[offset / 4];               \
      if (offset + 8 <= width) x.b = vec4s(row).data[offset / 4 + 1];           \
    } else {                                                                    \
      for (int i = 0; i < 4; ++i) {                                             \
        if (offset + i < width) x.a[i] = floats(row).data[offset + i];          \
        if (offset + 4 + i < width) x.b[i] = floats(row).data[offset + 4 + i];  \
      }                                                                         \
    }                                                                           \
    return x;                                                                   \
  }
LOAD_VEC8(load_vec8, Floats, FloatQuads)
// For data written by another dispatch of the step: counter_sync.glsl.
LOAD_VEC8(load_vec8_coherent, CoherentFloats, CoherentQuads)

void store_vec8(uint64_t row, int offset, int width, Vec8 x) {
  if (kUnalignedRows == 0 || (width & 3) == 0) {
    if (offset + 4 <= width) CoherentQuads(row).data[offset / 4] = x.a;
    if (offset + 8 <= width) CoherentQuads(row).data[offset / 4 + 1] = x.b;
  } else {
    for (int i = 0; i < 4; ++i) {
      if (offset + i < width) CoherentFloats(row).data[offset + i] = x.a[i];
      if (offset + 4 + i < width) CoherentFloats(row).data[offset + 4 + i] = x.b[i];
    }
  }
}

struct Q8Vec8 {
  uvec2 words;  // the lane's eight quants
  int sum;  // of 32 elements (four lanes)
  float scale;  // of the lane's quant block
};

uint packed_bytes(ivec4 q) { return uint((q.x & 255) | (q.y & 255) << 8 | (q.z & 255) << 16 | (q.w & 255) << 24); }

// block: 32 (one scale per four lanes) or 256 (one per warp).
Q8Vec8 quantize_vec8(Vec8 x, int block) {
  vec4 max_abs4 = max(abs(x.a), abs(x.b));
  float max_abs = clustered_max(max(max(max_abs4.x, max_abs4.y), max(max_abs4.z, max_abs4.w)), block / 8);
  precise float inverse = max_abs > 0 ? 127.0 / max_abs : 0.0;
  precise float scale = max_abs / 127.0;
  precise vec4 a = x.a * inverse;
  precise vec4 b = x.b * inverse;
  ivec4 qa = ivec4(roundEven(a));
  ivec4 qb = ivec4(roundEven(b));
  int sum = qa.x + qa.y + qa.z + qa.w + qb.x + qb.y + qb.z + qb.w;
  return Q8Vec8(uvec2(packed_bytes(qa), packed_bytes(qb)), clustered_sum_int(sum, 4), scale);
}

void store_q8(Q8Vec8 q8, Q8Activation dst, int row, int segment) {
  int lane = lane_id();
  CoherentPairs(dst.q + uint64_t(row) * uint64_t(dst.stride) + uint64_t(segment * kSegmentElems)).data[lane] = q8.words;
  int group = row * (dst.stride / kGroupElems) + segment * kSegmentGroups + lane / 4;
  if (lane % 4 == 0) {
    CoherentInts(dst.sum).data[group] = q8.sum;
    if (dst.block == kGroupElems) CoherentFloats(dst.scale).data[group] = q8.scale;
  }
  if (dst.block == kSegmentElems && lane == 0) {
    CoherentFloats(dst.scale).data[row * (dst.stride / kSegmentElems) + segment] = q8.scale;
  }
}

float sum_squares(Vec8 x, float start) {
  precise float sum = start;
  for (int i = 0; i < 4; ++i) sum = fma(x.a[i], x.a[i], sum);
  for (int i = 0; i < 4; ++i) sum = fma(x.b[i], x.b[i], sum);
  return sum;
}

// Sum of squares of a row over the workgroup: warp w has segments w, w + 8, ...
float row_sum_squares(uint64_t row, int width) {
  int n_segments = (width + kSegmentElems - 1) / kSegmentElems;
  float sum = 0;
  for (int s = warp_id(); s < n_segments; s += kWarps) {
    sum = sum_squares(load_vec8_coherent(row, s * kSegmentElems + lane_id() * 8, width), sum);
  }
  return workgroup_sum(sum);
}

float rms_factor(float sum, int width, float eps) {
  precise float factor = 1.0 / sqrt(sum / float(width) + eps);
  return factor;
}

// x * factor * weight; weight 0: none.
Vec8 apply_norm(Vec8 x, float factor, uint64_t weight, int offset, int width) {
  precise vec4 a = x.a * factor;
  precise vec4 b = x.b * factor;
  if (weight != 0ul) {
    Vec8 w = load_vec8(weight, offset, width);
    a = a * w.a;
    b = b * w.b;
  }
  return Vec8(a, b);
}
