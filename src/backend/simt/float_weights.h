// Dot products with floating-point weights: float32 activations, sequential FMA over a segment.
#pragma once

#include "backend/simt/panel.h"
#include "backend/simt/quantize.h"

namespace zinc::simt {

struct Floating {
  static constexpr bool kHasMin = false, kHalfScales = false;
  static constexpr int kHeaderBytes = 0, kQ8Block = 0;
};

template <class F>
ZINC_DEVICE uint4 float_piece(const u8* segment, int row, int g, int j) {
  return load_16(piece(segment, g * F::kGroupBytes + 16 * j, 16, row));
}

// No prefetch: a segment of float weights does not fit in registers.
template <class F>
struct LoadedSegment<F, true> {
  const u8* segment;
  int row;
  ZINC_DEVICE void load(const u8* from, int init_row, int) {
    segment = from;
    row = init_row;
  }
};

// A row of activations is read as floats from global memory; inputs past the end are zero.
template <class F>
struct Inputs<F, 1, true> {
  static constexpr int kSharedFloats = 0;
  ZINC_DEVICE void prepare(const LinearParams&, const BlockRows<1>&, float*) {}
  ZINC_DEVICE void dot(const LinearParams& p, const LoadedSegment<F>& loaded, const BlockRows<1>& rows, int segment,
                       int n_groups, float (&out)[1]) const {
    const int n_in = p.parts[0].n_in, first = segment * kSegmentElems, n_elems = min(kSegmentElems, n_in - first);
    const float* x = p.x + static_cast<long long>(rows.x_row(p, 0)) * n_in + first;
    out[0] = 0;
    for (int g = 0; g < n_groups; ++g) {
#pragma unroll
      for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) {
        const uint4 weights = float_piece<F>(loaded.segment, loaded.row, g, j);
#pragma unroll
        for (int k = 0; k < F::kPieceElems; ++k) {
          const int e = g * kGroupElems + j * F::kPieceElems + k;
          out[0] = fmaf(F::element(weights, k), e < n_elems ? x[e] : 0.0f, out[0]);
        }
      }
    }
  }
};

template <class F>
ZINC_DEVICE void decode_floats(const u8* segment, int row, int g, float (&out)[kGroupElems]) {
#pragma unroll
  for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) {
    const uint4 loaded = float_piece<F>(segment, row, g, j);
#pragma unroll
    for (int k = 0; k < F::kPieceElems; ++k) out[j * F::kPieceElems + k] = F::element(loaded, k);
  }
}

// Copies a row's elements; the rest of the last group is zero.
template <class F>
ZINC_DEVICE void pack_floats(const u8* from, int n_elems, u8* segment, int row) {
  for (int e = 0; e < (n_elems + kGroupElems - 1) / kGroupElems * kGroupElems; ++e) {
    const int g = e / kGroupElems, j = e % kGroupElems / F::kPieceElems, k = e % F::kPieceElems;
    u8* to = piece(segment, g * F::kGroupBytes + 16 * j, 16, row) + k * F::kBlockBytes;
    for (int b = 0; b < F::kBlockBytes; ++b) to[b] = e < n_elems ? from[e * F::kBlockBytes + b] : 0;
  }
}

}  // namespace zinc::simt
