// Load, norm and int8 quantization of activation rows, eight elements per lane and one segment per warp; the same bits
// in every kernel.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

struct Vec8 {
  float v[8];
};

// Elements past the end of the row are zero. REQUIRES: offset % 8 == 0.
ZINC_DEVICE Vec8 load_vec8(const float* row, int offset, int width) {
  Vec8 out;
  if (width % 4 == 0 && offset + 8 <= width) {
    const float4 a = reinterpret_cast<const float4*>(row + offset)[0],
                 b = reinterpret_cast<const float4*>(row + offset)[1];
    out = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = offset + i < width ? row[offset + i] : 0.0f;
  }
  return out;
}

ZINC_DEVICE void store_vec8(float* row, int offset, int width, const Vec8& x) {
  if (width % 4 == 0 && offset + 8 <= width) {
    reinterpret_cast<float4*>(row + offset)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    reinterpret_cast<float4*>(row + offset)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (offset + i < width) row[offset + i] = x.v[i];
    }
  }
}

struct QuantizedVec8 {
  int2 words;   // the lane's eight int8
  int sum;      // of the group, over four lanes
  float scale;  // of the lane's q8 block
};

// q8_block: 32 (four lanes share a scale) or 256 (all do). REQUIRES: no NaN, which would make the scale NaN.
ZINC_DEVICE QuantizedVec8 quantize_vec8(const Vec8& x, int q8_block) {
  float pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = fmaxf(fabsf(x.v[i]), fabsf(x.v[i + 4]));
  float amax = fmaxf(fmaxf(pairs[0], pairs[1]), fmaxf(pairs[2], pairs[3]));
  amax = q8_block == kSegmentElems ? warp_max_nonnegative(amax) : warp_max(amax, q8_block / 8);
  const float inverse = amax > 1e-30f ? 127.0f * rcp_approx(amax) : 0.0f;
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  u32 q[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) q[i] = __float_as_uint(x.v[i] * inverse + kRoundMagic);
  int words[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const u32 low = __byte_perm(q[4 * k], q[4 * k + 1], 0x0040u),
              high = __byte_perm(q[4 * k + 2], q[4 * k + 3], 0x0040u);
    words[k] = static_cast<int>(__byte_perm(low, high, 0x5410u));
  }
  const int sum = __dp4a(words[1], 0x01010101, __dp4a(words[0], 0x01010101, 0));
  return {make_int2(words[0], words[1]), warp_sum(sum, 4), amax * (1.0f / 127.0f)};
}

// REQUIRES: magnitudes up to 128, exact in bf16.
ZINC_DEVICE u32 ints_to_bf16x2(int a, int b) {
  return __float_as_uint(static_cast<float>(a)) >> 16 | (__float_as_uint(static_cast<float>(b)) & 0xFFFF0000u);
}

// The lane's eight as bf16 in the fragment order of wgmma: of each 16, elements 4 i and 4 i + 1 at index 2 i, the next
// two at 8 + 2 i.
ZINC_DEVICE void store_bf16(const int2& words, u16* segment) {
  const auto pair = [](int word, int i) {
    return ints_to_bf16x2(static_cast<signed char>(word >> 16 * i & 255),
                          static_cast<signed char>(word >> (16 * i + 8) & 255));
  };
  uint2* to = reinterpret_cast<uint2*>(segment + lane_id() / 2 * 16) + lane_id() % 2;
  to[0] = make_uint2(pair(words.x, 0), pair(words.y, 0));
  to[2] = make_uint2(pair(words.x, 1), pair(words.y, 1));
}

// A sum as two parts that are exact in f16; the high parts of all groups follow the low ones.
ZINC_DEVICE void store_f16_sum(int sum, u16* to) {
  const int low = sum & 63;
  to[0] = float_to_half(static_cast<float>(low));
  to[kSegmentGroups] = float_to_half(static_cast<float>(sum - low));
}

// The lane's part of the image for gemm_small_wgmma.cu.
ZINC_DEVICE void store_image(const QuantizedVec8& r, const Q8Activation& out, int row, int segment) {
  const int lane = lane_id(), piece = lane % 16 / 2 ^ row & 7;
  const int image_row = segment * out.image_rows + row, half_row = image_row + (segment + lane / 16) * out.image_rows;
  reinterpret_cast<int2*>(out.image)[half_row * 16 + 2 * piece + lane % 2] = r.words;
  if (lane % 4 == 0) {
    u16* sums =
        reinterpret_cast<u16*>(out.image + image_sums_at(out.stride, out.image_rows) + image_row * kImageSumBytes);
    store_f16_sum(r.sum, sums + lane / 4);
  }
  if (lane == 0) reinterpret_cast<float*>(out.image + image_scales_at(out.stride, out.image_rows))[image_row] = r.scale;
}

ZINC_DEVICE void store_q8(const QuantizedVec8& r, const Q8Activation& out, long long row, int segment, int q8_block) {
  const int lane = lane_id();
  signed char* to = out.q + row * out.stride + segment * kSegmentElems;
  if (out.is_in_mma_order) {
    reinterpret_cast<int*>(to)[mma_word(lane / 4, lane % 4 * 2)] = r.words.x;
    reinterpret_cast<int*>(to)[mma_word(lane / 4, lane % 4 * 2 + 1)] = r.words.y;
  } else {
    reinterpret_cast<int2*>(to)[lane] = r.words;
  }
  if (out.image) store_image(r, out, static_cast<int>(row), segment);
  if (out.wgmma_aux && q8_block == kGroupElems)
    store_bf16(r.words, out.wgmma_aux + row * out.stride + segment * kSegmentElems);
  if (out.wgmma_aux && q8_block == kSegmentElems && lane % 4 == 0) {
    store_f16_sum(r.sum,
                  out.wgmma_aux + (row * (out.stride / kSegmentElems) + segment) * (2 * kSegmentGroups) + lane / 4);
  }
  const long long group = row * (out.stride / kGroupElems) + segment * kSegmentGroups + lane / 4;
  if (lane % 4 == 0) out.sum[group] = r.sum;
  if (q8_block == kGroupElems) {
    if (lane % 4 == 0) out.scale[group] = r.scale;
  } else if (lane == 0) {
    out.scale[row * (out.stride / kSegmentElems) + segment] = r.scale;
  }
}

ZINC_DEVICE float sum_squares(const Vec8& x, float sum) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(x.v[i], x.v[i], sum);
  return sum;
}

// Sum of squares of a row from its segments' sums: every fourth added up, then pairwise, so the result does not depend
// on how segments are distributed over warps. sums_of_squares: padded with zeros to a multiple of four; aligned.
template <int n_segments>
ZINC_DEVICE float reduce_sum_squares(const float* sums_of_squares) {
  float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < (n_segments + 3) / 4; ++i) {
    const float4 more = reinterpret_cast<const float4*>(sums_of_squares)[i];
    sums = make_float4(sums.x + more.x, sums.y + more.y, sums.z + more.z, sums.w + more.w);
  }
  return (sums.x + sums.z) + (sums.y + sums.w);
}
// Of a warp's segment.
ZINC_DEVICE void store_sum_squares(const Vec8& x, float* to) {
  const float sum = warp_sum(sum_squares(x, 0), 32);
  if (lane_id() == 0) *to = sum;
}

// Sum of squares of a row over the whole block, in the order of reduce_sum_squares(); n segments in flight per warp.
// sums_of_squares: n * kWarps floats.
template <int n>
ZINC_DEVICE float row_sum_squares(const float* x, int width, float* sums_of_squares) {
  const int n_segments = (width + kSegmentElems - 1) / kSegmentElems;
  float sum = 0;
#pragma unroll 1
  for (int begin = 0; begin < n_segments; begin += n * kWarps) {
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const int s = k * kWarps + warp_id();
      store_sum_squares(load_vec8(x, (begin + s) * kSegmentElems + lane_id() * 8, width), sums_of_squares + s);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < n * kWarps / 4; ++k) sum += sums_of_squares[4 * k + lane_id() % 4];
    __syncthreads();
  }
  return warp_sum(sum, 4);
}

ZINC_DEVICE float rms_factor(float sum, int width, float eps) {
  return rsqrt_approx(sum * (1.0f / static_cast<float>(width)) + eps);
}

// x * factor * weight. weight: null for none.
ZINC_DEVICE Vec8 normed(const Vec8& x, float factor, const float* weight, int offset, int width) {
  Vec8 y;
  if (weight) {
    const Vec8 w = load_vec8(weight, offset, width);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = x.v[i] * factor * w.v[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = x.v[i] * factor;
  }
  return y;
}

ZINC_DEVICE float gated(int act, float gate, float up) {
  if (act == kSilu) return gate * sigmoid(gate) * up;
  if (act == kGelu) {
    const float inner = 0.79788456080286535588f * gate * (1.0f + 0.044715f * gate * gate);
    return 0.5f * gate * (1.0f + tanhf(inner)) * up;
  }
  if (act == kSigmoid) return sigmoid(gate) * up;
  const float g = fminf(gate, 7.0f);  // gpt-oss's clamped SwiGLU
  return g * sigmoid(1.702f * g) * (fminf(fmaxf(up, -7.0f), 7.0f) + 1.0f);
}

}  // namespace zinc::simt
