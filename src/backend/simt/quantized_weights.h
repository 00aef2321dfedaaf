// Dot products with block-quantized weights: int8 activations, exact integer sums, then a minimum of float operations,
// in the same order in every kernel. A segment's value is
//   q8 blocks of 256: (d * sum(scale_g * dot_g) - dmin * sum(min_g * xsum_g)) * xscale
//   q8 blocks of 32:  sum over g of dot_g * (scale_g * xscale_g) [+ min_g * (xscale_g * xsum_g)]
// so gemv and gemm kernels are bit-identical.
#pragma once

#include "backend/simt/panel.h"
#include "backend/simt/quantize.h"

namespace zinc::simt {

// All bytes of a row's segment, in registers.
template <class F>
struct LoadedSegment<F, false> {
  typename F::Header header;
  typename F::Raw groups[kSegmentGroups];

  ZINC_DEVICE void load(const u8* segment, int row, int n_groups) {
    header = F::header(segment, row);
#pragma unroll
    for (int g = 0; g < kSegmentGroups; ++g) {
      if (g < n_groups) groups[g] = F::group(segment, row, g);
    }
  }
};

// A segment with integer scales. sums: scale_g * dot_g, mins: min_g * xsum_g, over its groups; integers, exact in
// float.
template <class F>
ZINC_DEVICE float segment_value(const typename F::Header& header, int sums, float mins, float xscale) {
  float value = header.d() * static_cast<float>(sums);
  if constexpr (F::kHasMin) value = fmaf(-header.dmin(), mins, value);
  return value * xscale;
}

// Adds a group of a segment with float scales.
template <class F>
ZINC_DEVICE float add_group(const typename F::Header& header, int g, int dot, float xscale, int xsum, float value) {
  value = fmaf(static_cast<float>(dot), header.scale(g) * xscale, value);
  if constexpr (F::kHasMin) value = fmaf(header.min(g), xscale * static_cast<float>(xsum), value);
  return value;
}

ZINC_DEVICE int dot_16(const int* w, const int4& x) {
  return __dp4a(w[3], x.w, __dp4a(w[2], x.z, __dp4a(w[1], x.y, __dp4a(w[0], x.x, 0))));
}

// A quantized segment of one activation row, in shared memory.
struct Q8Segment {
  int4 quants[16];
  float scales[kSegmentGroups];
  int sums[kSegmentGroups];
};
static_assert(sizeof(Q8Segment) == input_segment_bytes(false));

// A weight row's segment times the segments of M activation rows.
template <class F, int M>
ZINC_DEVICE void dot_q8(const LoadedSegment<F>& loaded, const Q8Segment* x, int n_groups, float (&out)[M]) {
  int sums[M] = {}, mins[M] = {};
#pragma unroll
  for (int m = 0; m < M; ++m) out[m] = 0;
#pragma unroll
  for (int g = 0; g < kSegmentGroups; ++g) {
    if (g >= n_groups) break;
    int w[8];
    F::words(loaded.groups[g], w);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int4* q = x[m].quants + 2 * g;
      const int low = dot_16(w, q[0]), high = dot_16(w + 4, q[1]);
      if constexpr (F::kQ8Block == kGroupElems) {
        out[m] = add_group<F>(loaded.header, g, low + high, x[m].scales[g], F::kHasMin ? x[m].sums[g] : 0, out[m]);
      } else if constexpr (F::kHalfScales) {
        sums[m] += loaded.header.scale(2 * g) * low + loaded.header.scale(2 * g + 1) * high;
      } else {
        sums[m] += loaded.header.scale(g) * (low + high);
        if constexpr (F::kHasMin) mins[m] += loaded.header.min(g) * x[m].sums[g];
      }
    }
  }
  if constexpr (F::kQ8Block == kSegmentElems) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      out[m] = segment_value<F>(loaded.header, sums[m], static_cast<float>(mins[m]), x[m].scales[0]);
    }
  }
}

// Norm factors of the rows (in shared memory, since weights fill the registers) and the segments each warp quantizes.
template <class F, int M>
struct Inputs<F, M, false> {
  Q8Segment* warp_segments;
  float* factors;

  static constexpr int kSharedFloats = kWarps * M * static_cast<int>(sizeof(Q8Segment) / sizeof(float));
  ZINC_DEVICE void prepare(const LinearParams& p, const BlockRows<M>& rows, float* shared) {
    __shared__ float norm_factors[M], sums_of_squares[kWarps];
    warp_segments = reinterpret_cast<Q8Segment*>(shared) + warp_id() * M;
    factors = norm_factors;
    if (p.q8.q || !p.is_normed) return;
    const int width = p.parts[0].n_in;
#pragma unroll 1
    for (int m = 0; m < M; ++m) {
      const float* x = p.x + static_cast<long long>(rows.x_row(p, m)) * width;
      const float factor = rms_factor(row_sum_squares<1>(x, width, sums_of_squares), width, p.norm_eps);
      if (threadIdx.x == 0) factors[m] = factor;
    }
    __syncthreads();
  }
  ZINC_DEVICE void dot(const LinearParams& p, const LoadedSegment<F>& loaded, const BlockRows<M>& rows, int segment,
                       int n_groups, float (&out)[M]) const {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int row = rows.x_row(p, m);
      p.q8.q ? copy(p, row, segment, warp_segments[m]) : quantize(p, row, m, segment, warp_segments[m]);
    }
    __syncwarp();
    dot_q8<F, M>(loaded, warp_segments, n_groups, out);
  }

 private:
  // From an already quantized row.
  static ZINC_DEVICE void copy(const LinearParams& p, long long row, int segment, Q8Segment& to) {
    const Q8Activation& x = p.q8;
    const int lane = lane_id();
    reinterpret_cast<int2*>(to.quants)[lane] =
        reinterpret_cast<const int2*>(x.q + row * x.stride + segment * kSegmentElems)[lane];
    const long long group = row * (x.stride / kGroupElems) + segment * kSegmentGroups + lane;
    if (lane < kSegmentGroups) {
      to.sums[lane] = x.sum[group];
      to.scales[lane] =
          F::kQ8Block == kGroupElems ? x.scale[group] : x.scale[row * (x.stride / kSegmentElems) + segment];
    }
  }
  ZINC_DEVICE void quantize(const LinearParams& p, long long row, int m, int segment, Q8Segment& to) const {
    const int offset = segment * kSegmentElems + lane_id() * 8, width = p.parts[0].n_in, lane = lane_id();
    Vec8 x = load_vec8(p.x + row * width, offset, width);
    if (p.is_normed) x = normed(x, factors[m], p.norm_weight, offset, width);
    const QuantizedVec8 r = quantize_vec8(x, F::kQ8Block);
    reinterpret_cast<int2*>(to.quants)[lane] = r.words;
    if (lane % 4 == 0) {
      to.scales[lane / 4] = r.scale;
      to.sums[lane / 4] = r.sum;
    }
  }
};

// Dequantizes a group.
template <class F>
ZINC_DEVICE void decode_quants(const u8* segment, int row, int g, float (&out)[kGroupElems]) {
  const typename F::Header header = F::header(segment, row);
  int w[8];
  F::words(F::group(segment, row, g), w);
#pragma unroll
  for (int e = 0; e < kGroupElems; ++e) {
    const float q = static_cast<float>(static_cast<signed char>(w[e / 4] >> 8 * (e % 4) & 255));
    if constexpr (F::kQ8Block == kGroupElems) {
      out[e] = header.scale(g) * q;
      if constexpr (F::kHasMin) out[e] += header.min(g);
    } else if constexpr (F::kHalfScales) {
      out[e] = header.d() * static_cast<float>(header.scale(2 * g + e / 16)) * q;
    } else {
      out[e] = header.d() * static_cast<float>(header.scale(g)) * q;
      if constexpr (F::kHasMin) out[e] -= header.dmin() * static_cast<float>(header.min(g));
    }
  }
}

}  // namespace zinc::simt
