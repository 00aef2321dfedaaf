// What a block of product.cu multiplies with: rows of activations in shared memory, rounded in segments or as floats,
// normed and gated on the way. Each block makes them for itself.
#pragma once

#include "backend/simt/quantized.h"

namespace zinc::simt {

template <class F>
struct RowInput {
  static constexpr bool kIsFloat = F::kRoundedBlock == 0;

  // What was rounded before.
  static ZINC_DEVICE void copy(const Rounded& x, long long row, int segment, SharedX& to) {
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
  static ZINC_DEVICE void write(const Eight& x, int segment, u8* shared) {
    const int lane = lane_id();
    if constexpr (kIsFloat) {
      store_eight(reinterpret_cast<float*>(shared) + segment * kSegmentElems, lane * 8, kSegmentElems, x);
    } else {
      SharedX& to = reinterpret_cast<SharedX*>(shared)[segment];
      const RoundedEight r = round_eight(x, F::kRoundedBlock);
      reinterpret_cast<int2*>(to.quants)[lane] = r.words;
      if (lane % 4 == 0) {
        to.scales[lane / 4] = r.scale;
        to.sums[lane / 4] = r.sum;
      }
    }
  }

  // A segment of heads: each normed, then gated.
  static ZINC_DEVICE Eight gated_heads(const RowSource& p, const Eight& x, int at, int width) {
    const float sum = lanes_sum(squares(x, 0), p.head_dim / 8);
    Eight y = normed(x, rms_factor(sum, p.head_dim, p.norm_eps), p.norm_weight, at % p.head_dim, p.head_dim);
    const Eight gate = load_eight(p.gate, at, width);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(p.gate_act, gate.v[i], y.v[i]);
    return y;
  }

  // kAtOnce segments of the warp, from place `first` on, are loaded together; then each is made ready.
  static constexpr int kAtOnce = 4, kNormsAtOnce = 2;
  struct Norms {
    Eight weight[kNormsAtOnce];  // of the warp's first segments, loaded before the row is there
    ZINC_DEVICE void load(const RowSource& p, int width, int n_segments) {
#pragma unroll
      for (int i = 0; i < kNormsAtOnce; ++i) {
        const int s = warp_id() + i * kWarps;
        if (p.is_normed && p.norm_weight && s < n_segments) {
          weight[i] = load_eight(p.norm_weight, s * kSegmentElems + lane_id() * 8, width);
        }
      }
    }
  };

  // Rows of a product that are normed as one: there is only one.
  static ZINC_DEVICE void prepare_normed(const RowSource& p, int width, int n_segments, long long row,
                                         const Norms& norms, u8* shared, float* room) {
    const float* x = p.x + row * width;
    Eight kept[kAtOnce];
    float sum = 0;
    for (int first = warp_id(); first < n_segments; first += kAtOnce * kWarps) {
      Eight loaded[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int s = first + i * kWarps;
        if (s < n_segments) loaded[i] = load_eight(x, s * kSegmentElems + lane_id() * 8, width);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kWarps < n_segments) sum = squares(loaded[i], sum);
        if (first == warp_id()) kept[i] = loaded[i];
      }
    }
    const float factor = rms_factor(block_sum(sum, room), width, p.norm_eps);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int s = warp_id() + i * kWarps, at = s * kSegmentElems + lane_id() * 8;
      if (s >= n_segments) continue;
      if (i < kNormsAtOnce && p.norm_weight) {
        const Eight& w = norms.weight[i < kNormsAtOnce ? i : 0];
        Eight y;
#pragma unroll
        for (int e = 0; e < 8; ++e) y.v[e] = kept[i].v[e] * factor * w.v[e];
        write(y, s, shared);
      } else {
        write(normed(kept[i], factor, p.norm_weight, at, width), s, shared);
      }
    }
    for (int s = warp_id() + kAtOnce * kWarps; s < n_segments; s += kWarps) {
      const int at = s * kSegmentElems + lane_id() * 8;
      write(normed(load_eight(x, at, width), factor, p.norm_weight, at, width), s, shared);
    }
  }

  // n_rows rows from `row` on. room: kWarps floats of shared memory.
  static ZINC_DEVICE void prepare(const RowSource& p, int width, int n_segments, long long row, int n_rows,
                                  const Norms& norms, u8* shared, float* room) {
    if (p.is_normed) {
      prepare_normed(p, width, n_segments, row, norms, shared, room);
      __syncthreads();
      return;
    }
    const int n = n_rows * n_segments;
    for (int first = warp_id(); first < n; first += kAtOnce * kWarps) {
      Eight loaded[kAtOnce];
      int ats[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i * kWarps, r = index / n_segments, s = index - r * n_segments;
        ats[i] = s * kSegmentElems + lane_id() * 8;
        if (index >= n) continue;
        const bool is_last = p.last_x && r == n_rows - 1;
        if constexpr (!kIsFloat) {
          if (p.rounded.q && !is_last) {
            copy(p.rounded, row + r, s, reinterpret_cast<SharedX*>(shared)[index]);
            continue;
          }
        }
        loaded[i] = load_eight(is_last ? p.last_x : p.x + (row + r) * width, ats[i], width);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i * kWarps;
        if (index >= n || (!kIsFloat && p.rounded.q && !(p.last_x && index / n_segments == n_rows - 1))) continue;
        write(p.head_dim > 0 ? gated_heads(p, loaded[i], ats[i], width) : loaded[i], index, shared);
      }
    }
    __syncthreads();
  }
};

}  // namespace zinc::simt
