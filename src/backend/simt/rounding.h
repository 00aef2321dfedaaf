// Eight numbers a lane, a segment a warp: how rows are read, normed and rounded to 8 bits, the same wherever it
// happens.
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

struct Eight {
  float v[8];
};

// Numbers past the row's end are zero. REQUIRES: at % 8 == 0.
ZINC_DEVICE Eight load_eight(const float* row, int at, int width) {
  Eight out;
  if (width % 4 == 0 && at + 8 <= width) {
    const float4 a = reinterpret_cast<const float4*>(row + at)[0], b = reinterpret_cast<const float4*>(row + at)[1];
    out = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = at + i < width ? row[at + i] : 0.0f;
  }
  return out;
}

ZINC_DEVICE void store_eight(float* row, int at, int width, const Eight& x) {
  if (width % 4 == 0 && at + 8 <= width) {
    reinterpret_cast<float4*>(row + at)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    reinterpret_cast<float4*>(row + at)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at + i < width) row[at + i] = x.v[i];
    }
  }
}

struct RoundedEight {
  int2 words;   // the lane's eight numbers
  int sum;      // of the 32 that four lanes have
  float scale;  // of the lane's block
};

// block: 32 (four lanes share a scale) or 256 (all do). REQUIRES: numbers; of others the scale is none.
ZINC_DEVICE RoundedEight round_eight(const Eight& x, int block) {
  float pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = fmaxf(fabsf(x.v[i]), fabsf(x.v[i + 4]));
  float largest = fmaxf(fmaxf(pairs[0], pairs[1]), fmaxf(pairs[2], pairs[3]));
  largest = block == kSegmentElems ? lanes_largest(largest) : lanes_max(largest, block / 8);
  const float inverse = largest > 1e-30f ? 127.0f * reciprocal(largest) : 0.0f;
  constexpr float kNoFraction = 12582912.0f;  // 1.5 * 2^23: behind it there are whole numbers, in the low bits
  u32 q[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) q[i] = __float_as_uint(x.v[i] * inverse + kNoFraction);
  int words[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const u32 low = __byte_perm(q[4 * k], q[4 * k + 1], 0x0040u),
              high = __byte_perm(q[4 * k + 2], q[4 * k + 3], 0x0040u);
    words[k] = static_cast<int>(__byte_perm(low, high, 0x5410u));
  }
  const int sum = __dp4a(words[1], 0x01010101, __dp4a(words[0], 0x01010101, 0));
  return {make_int2(words[0], words[1]), lanes_sum(sum, 4), largest * (1.0f / 127.0f)};
}

// Two whole numbers below 128 as bf16.
ZINC_DEVICE u32 whole_pair(int a, int b) {
  return __float_as_uint(static_cast<float>(a)) >> 16 | (__float_as_uint(static_cast<float>(b)) & 0xFFFF0000u);
}

// The lane's eight numbers where gemm_wide.cu wants them: of each 16, numbers 4 i and 4 i + 1 at place 2 i, the two
// that follow them at 8 + 2 i, as the matrix instructions' lanes hold them.
ZINC_DEVICE void store_halves(const int2& words, u16* segment) {
  const auto pair = [](int word, int i) {
    return whole_pair(static_cast<signed char>(word >> 16 * i & 255),
                      static_cast<signed char>(word >> (16 * i + 8) & 255));
  };
  uint2* to = reinterpret_cast<uint2*>(segment + lane_id() / 2 * 16) + lane_id() % 2;
  to[0] = make_uint2(pair(words.x, 0), pair(words.y, 0));
  to[2] = make_uint2(pair(words.x, 1), pair(words.y, 1));
}

// A sum in two parts that are exact as halves, one after those of all groups.
ZINC_DEVICE void store_sum(int sum, u16* to) {
  const int low = sum & 63;
  to[0] = float_to_half(static_cast<float>(low));
  to[kSegmentGroups] = float_to_half(static_cast<float>(sum - low));
}

ZINC_DEVICE void store_rounded(const RoundedEight& r, const Rounded& out, long long row, int segment, int block) {
  const int lane = lane_id();
  reinterpret_cast<int2*>(out.q + row * out.stride + segment * kSegmentElems)[lane] = r.words;
  if (out.wide && block == kGroupElems) store_halves(r.words, out.wide + row * out.stride + segment * kSegmentElems);
  if (out.wide && block == kSegmentElems && lane % 4 == 0) {
    store_sum(r.sum, out.wide + (row * (out.stride / kSegmentElems) + segment) * (2 * kSegmentGroups) + lane / 4);
  }
  const long long group = row * (out.stride / kGroupElems) + segment * kSegmentGroups + lane / 4;
  if (lane % 4 == 0) out.sum[group] = r.sum;
  if (block == kGroupElems) {
    if (lane % 4 == 0) out.scale[group] = r.scale;
  } else if (lane == 0) {
    out.scale[row * (out.stride / kSegmentElems) + segment] = r.scale;
  }
}

ZINC_DEVICE float squares(const Eight& x, float sum) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(x.v[i], x.v[i], sum);
  return sum;
}

// A row's squares: its segments' sums, every fourth of them added up, and these two by two. So it does not matter how
// warps share them out. room: segments' sums in fours, those past the row's end zero; aligned.
template <int n_segments>
ZINC_DEVICE float sum_squares(const float* room) {
  float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < (n_segments + 3) / 4; ++i) {
    const float4 more = reinterpret_cast<const float4*>(room)[i];
    sums = make_float4(sums.x + more.x, sums.y + more.y, sums.z + more.z, sums.w + more.w);
  }
  return (sums.x + sums.z) + (sums.y + sums.w);
}
// A warp's segment.
ZINC_DEVICE void put_squares(const Eight& x, float* to) {
  const float sum = lanes_sum(squares(x, 0), 32);
  if (lane_id() == 0) *to = sum;
}

// Of a row of `width` numbers, over the whole block: n segments of a warp at once, and of the sums every fourth a lane.
// room: n * kWarps floats.
template <int n>
ZINC_DEVICE float row_squares(const float* x, int width, float* room) {
  const int n_segments = (width + kSegmentElems - 1) / kSegmentElems;
  float sum = 0;
#pragma unroll 1
  for (int begin = 0; begin < n_segments; begin += n * kWarps) {
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const int s = k * kWarps + warp_id();
      put_squares(load_eight(x, (begin + s) * kSegmentElems + lane_id() * 8, width), room + s);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < n * kWarps / 4; ++k) sum += room[4 * k + lane_id() % 4];
    __syncthreads();
  }
  return lanes_sum(sum, 4);
}

ZINC_DEVICE float rms_factor(float sum, int width, float eps) {
  return reciprocal_root(sum * (1.0f / static_cast<float>(width)) + eps);
}

// x * factor * weight. weight: the row's, or null.
ZINC_DEVICE Eight normed(const Eight& x, float factor, const float* weight, int at, int width) {
  Eight y;
  if (weight) {
    const Eight w = load_eight(weight, at, width);
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
