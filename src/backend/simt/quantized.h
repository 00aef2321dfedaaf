// Products with block-quantized weights: 8-bit activations, exact integer sums, and then the fewest float operations,
// in one order for every kernel. A segment's value is
//   256 numbers a scale: (d * sum(scale_g * dot_g) - dmin * sum(min_g * xsum_g)) * xscale
//   32 numbers a scale:  sum over g of dot_g * (scale_g * xscale_g) [+ min_g * (xscale_g * xsum_g)]
// so that a matrix-vector kernel and a matrix-core kernel agree to the bit.
#pragma once

#include "backend/simt/panel.h"
#include "backend/simt/rounding.h"

namespace zinc::simt {

// Every byte a row has in one segment, on its way from memory.
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

// The value of a segment whose scales are integers. sums: scale_g * dot_g, mins: min_g * xsum_g, over its groups.
template <class F>
ZINC_DEVICE float segment_value(const typename F::Header& header, int sums, int mins, float xscale) {
  float value = header.d() * static_cast<float>(sums);
  if constexpr (F::kHasMin) value = fmaf(-header.dmin(), static_cast<float>(mins), value);
  return value * xscale;
}

// One more group of a segment whose scales are floats.
template <class F>
ZINC_DEVICE float add_group(const typename F::Header& header, int g, int dot, float xscale, int xsum, float value) {
  value = fmaf(static_cast<float>(dot), header.scale(g) * xscale, value);
  if constexpr (F::kHasMin) value = fmaf(header.min(g), xscale * static_cast<float>(xsum), value);
  return value;
}

ZINC_DEVICE int dot_16(const int* w, const int4& x) {
  return __dp4a(w[3], x.w, __dp4a(w[2], x.z, __dp4a(w[1], x.y, __dp4a(w[0], x.x, 0))));
}

// A segment of one row of activations, rounded, in a warp's own shared memory.
struct SharedX {
  int4 quants[16];
  float scales[kSegmentGroups];
  int sums[kSegmentGroups];
};
static_assert(sizeof(SharedX) == row_segment_bytes(false));

// The row's segment times that of M rows of activations.
template <class F, int M>
ZINC_DEVICE void dot_rounded(const LoadedSegment<F>& loaded, const SharedX* x, int n_groups, float (&out)[M]) {
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
      if constexpr (F::kRoundedBlock == kGroupElems) {
        out[m] = add_group<F>(loaded.header, g, low + high, x[m].scales[g], F::kHasMin ? x[m].sums[g] : 0, out[m]);
      } else if constexpr (F::kHalfScales) {
        sums[m] += loaded.header.scale(2 * g) * low + loaded.header.scale(2 * g + 1) * high;
      } else {
        sums[m] += loaded.header.scale(g) * (low + high);
        if constexpr (F::kHasMin) mins[m] += loaded.header.min(g) * x[m].sums[g];
      }
    }
  }
  if constexpr (F::kRoundedBlock == kSegmentElems) {
#pragma unroll
    for (int m = 0; m < M; ++m) out[m] = segment_value<F>(loaded.header, sums[m], mins[m], x[m].scales[0]);
  }
}

// What a block keeps between its segments: the factors of normed rows (in shared memory, as weights fill the
// registers), and room for the rows each warp rounds.
template <class F, int M>
struct Inputs<F, M, false> {
  SharedX* own;  // the warp's
  float* factors;

  static constexpr int kSharedFloats = kWarps * M * static_cast<int>(sizeof(SharedX) / sizeof(float));
  ZINC_DEVICE void prepare(const LinearParams& p, const Work<M>& work, float* shared) {
    __shared__ float its_factors[M], room[kWarps];
    own = reinterpret_cast<SharedX*>(shared) + warp_id() * M;
    factors = its_factors;
    if (p.rounded.q || !p.is_normed) return;
    const int width = p.parts[0].n_in;
#pragma unroll 1
    for (int m = 0; m < M; ++m) {
      const float* x = p.x + static_cast<long long>(work.x_row(p, m)) * width;
      const float factor = rms_factor(row_squares<1>(x, width, room), width, p.norm_eps);
      if (threadIdx.x == 0) factors[m] = factor;
    }
    __syncthreads();
  }
  ZINC_DEVICE void dot(const LinearParams& p, const LoadedSegment<F>& loaded, const Work<M>& work, int segment,
                       int n_groups, float (&out)[M]) const {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const int row = work.x_row(p, m);
      p.rounded.q ? copy(p, row, segment, own[m]) : round(p, row, m, segment, own[m]);
    }
    __syncwarp();
    dot_rounded<F, M>(loaded, own, n_groups, out);
  }

 private:
  // What was rounded before.
  static ZINC_DEVICE void copy(const LinearParams& p, long long row, int segment, SharedX& to) {
    const Rounded& x = p.rounded;
    const int lane = lane_id();
    reinterpret_cast<int2*>(to.quants)[lane] =
        reinterpret_cast<const int2*>(x.q + row * x.stride + segment * kSegmentElems)[lane];
    const long long group = row * (x.stride / kGroupElems) + segment * kSegmentGroups + lane;
    if (lane < kSegmentGroups) {
      to.sums[lane] = x.sum[group];
      to.scales[lane] =
          F::kRoundedBlock == kGroupElems ? x.scale[group] : x.scale[row * (x.stride / kSegmentElems) + segment];
    }
  }
  ZINC_DEVICE void round(const LinearParams& p, long long row, int m, int segment, SharedX& to) const {
    const int at = segment * kSegmentElems + lane_id() * 8, width = p.parts[0].n_in, lane = lane_id();
    Eight x = load_eight(p.x + row * width, at, width);
    if (p.is_normed) x = normed(x, factors[m], p.norm_weight, at, width);
    const RoundedEight r = round_eight(x, F::kRoundedBlock);
    reinterpret_cast<int2*>(to.quants)[lane] = r.words;
    if (lane % 4 == 0) {
      to.scales[lane / 4] = r.scale;
      to.sums[lane / 4] = r.sum;
    }
  }
};

// The group's 32 numbers as floats.
template <class F>
ZINC_DEVICE void decode_quants(const u8* segment, int row, int g, float (&out)[kGroupElems]) {
  const typename F::Header header = F::header(segment, row);
  int w[8];
  F::words(F::group(segment, row, g), w);
#pragma unroll
  for (int e = 0; e < kGroupElems; ++e) {
    const float q = static_cast<float>(static_cast<signed char>(w[e / 4] >> 8 * (e % 4) & 255));
    if constexpr (F::kRoundedBlock == kGroupElems) {
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
