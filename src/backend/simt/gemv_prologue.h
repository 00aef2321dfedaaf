// Prologue of gemv.cu: loads the activation rows, applies residual add, norm and gate, quantizes them and stores them
// in shared memory. Each block does this on its own. REQUIRES: kShape.
#pragma once

#include "backend/simt/gemv_dot.h"

namespace zinc::simt {

constexpr int kGemvThreads = 64 * kShape.n_warp_pairs, kGemvWarps = 2 * kShape.n_warp_pairs;

// Layout of the row. Of a normed row, warp w has segments w, w + kGemvWarps, ...
struct InputLayout {
  static constexpr int kWidth = kShape.n_in, kSegments = segment_count(kWidth);
  static constexpr bool kIsNormed = is_normed(kShape.input), kAddsResidual = kShape.input == kNormResidualInput;
  static constexpr int kSegmentsPerWarp = (kSegments + kGemvWarps - 1) / kGemvWarps;
  static constexpr bool kSegmentsDivide = kSegments % kGemvWarps == 0;  // all warps have equally many

  static ZINC_DEVICE bool has_segment(int i) { return kSegmentsDivide || segment(i) < kSegments; }
  static ZINC_DEVICE int segment(int i) { return warp_id() + i * kGemvWarps; }
  static ZINC_DEVICE int element(int i) { return segment(i) * kSegmentElems + lane_id() * 8; }
  // Elements past the end of the row are zero.
  static ZINC_DEVICE bool is_in_bounds(int offset) { return kWidth % kSegmentElems == 0 || offset < kWidth; }
  static ZINC_DEVICE Vec8 load(const float* row, int offset) {
    if constexpr (kWidth % 8 == 0) {
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (is_in_bounds(offset)) {
        a = reinterpret_cast<const float4*>(row + offset)[0];
        b = reinterpret_cast<const float4*>(row + offset)[1];
      }
      return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
      return load_vec8(row, offset, kWidth);
    }
  }
};

// Post-norm weights and scale of kNormResidualInput, a lane's share; loaded before the wait.
struct ResidualWeights : InputLayout {
  Vec8 post_norm[kAddsResidual ? kSegmentsPerWarp : 1];
  float scale;

  ZINC_DEVICE explicit ResidualWeights(const GemvInput& p) {
    if constexpr (!kAddsResidual) return;
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      post_norm[i] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (p.post_norm_weight && has_segment(i)) post_norm[i] = load(p.post_norm_weight, element(i));
    }
    scale = p.scale ? p.scale[0] : 1.0f;
  }
};

// B: the q8 block, 0 for floats. Called by all gemv threads. cluster_size: blocks that split the segments; a split-K
// block needs all of them.
template <int B, int cluster_size = kShape.cluster_size>
struct GemvPrologue : InputLayout {
  // Segments in flight per warp.
  static constexpr int kMaxInFlight = kShape.input == kGatedHeadsInput ? 2 : 3;
  static constexpr int kBlockSegments = cluster_size == kShape.cluster_size ? max_block_segments(kShape) : kSegments;
  static constexpr int kBlockSegmentsPerWarp = (kBlockSegments + kGemvWarps - 1) / kGemvWarps;
  static constexpr int kInFlight = kBlockSegmentsPerWarp < kMaxInFlight ? kBlockSegmentsPerWarp : kMaxInFlight;

  // Before the wait. REQUIRES: aligned norm weights.
  static ZINC_DEVICE void load_norm_weight(const GemvInput& p, float* norm) {
    if constexpr (kIsNormed && kWidth % 4 == 0) {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) * 4; i < kWidth; i += kGemvThreads * 4) {
        if (p.norm_weight) {
          cp_async_16(norm + i, p.norm_weight + i);
        } else {
          *reinterpret_cast<float4*>(norm + i) = make_float4(1, 1, 1, 1);
        }
      }
      cp_async_commit();
    }
  }

  // A row read before the wait bypasses L1, which may be stale.
  static ZINC_DEVICE Vec8 load_row(const float* row, int offset) {
    if constexpr (kShape.reads_before_wait == 0 || kWidth % 8 != 0) return load(row, offset);
    float4 a = make_float4(0, 0, 0, 0), b = a;
    if (is_in_bounds(offset)) {
      a = __ldcg(reinterpret_cast<const float4*>(row + offset));
      b = __ldcg(reinterpret_cast<const float4*>(row + offset) + 1);
    }
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  // The lane's eight in order; or in the nibble order of a group, which interleaves lanes two apart.
  static ZINC_DEVICE void store_words(Q8Segment& to, const int2& words) {
    int2* to_words = reinterpret_cast<int2*>(to.quants);
    if constexpr (B != kGroupElems || !all_have_nibble_dot(Formats{})) {
      to_words[lane_id()] = words;
    } else {
      const int lane = lane_id(), is_upper = lane & 2;
      const int other = __shfl_xor_sync(0xFFFFFFFFu, is_upper ? words.x : words.y, 2);
      const u32 first = static_cast<u32>(is_upper ? other : words.x),
                second = static_cast<u32>(is_upper ? words.y : other);
      to_words[(lane & ~3) + 2 * (lane & 1) + is_upper / 2] = make_int2(
          static_cast<int>(__byte_perm(first, second, 0x5140u)), static_cast<int>(__byte_perm(first, second, 0x7362u)));
    }
  }
  static ZINC_DEVICE void write(const Vec8& x, int segment, u8* shared) {
    const int lane = lane_id();
    if constexpr (B == 0) {
      store_vec8(reinterpret_cast<float*>(shared) + segment * kSegmentElems, lane * 8, kSegmentElems, x);
    } else {
      Q8Segment& to = reinterpret_cast<Q8Segment*>(shared)[segment];
      const QuantizedVec8 r = quantize_vec8(x, B);
      store_words(to, r.words);
      if (lane % 4 == 0) {
        to.scales[lane / 4] = r.scale;
        to.sums[lane / 4] = r.sum;
      }
    }
  }
  // From an already quantized row.
  static ZINC_DEVICE void copy(const Q8Activation& x, long long row, int s, Q8Segment& to) {
    const int lane = lane_id();
    store_words(to, reinterpret_cast<const int2*>(x.q + row * x.stride + s * kSegmentElems)[lane]);
    const long long group = row * (x.stride / kGroupElems) + s * kSegmentGroups + lane;
    if (lane < kSegmentGroups) {
      to.sums[lane] = x.sum[group];
      to.scales[lane] = B == kGroupElems ? x.scale[group] : x.scale[row * (x.stride / kSegmentElems) + s];
    }
  }
  // A segment of heads: norm per head, then the output gate.
  static ZINC_DEVICE Vec8 gated_heads(const GemvInput& p, const Vec8& x, const Vec8& gate, int offset) {
    constexpr int kHead = kShape.head_dim > 0 ? kShape.head_dim : 8;
    const float sum = warp_sum(sum_squares(x, 0), kHead / 8);
    Vec8 y = normed(x, rms_factor(sum, kHead, p.norm_eps), p.norm_weight, offset % kHead, kHead);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(kShape.gate_act, gate.v[i], y.v[i]);
    return y;
  }

  // x * factor * weight, in the order of normed().
  static ZINC_DEVICE Vec8 scale_by_norm(const Vec8& x, float factor, const float* weight, int offset) {
    if (kWidth % 4 != 0 && !weight) return normed(x, factor, weight, offset, kWidth);
    const Vec8 w = load(weight, offset);
    Vec8 y;
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = x.v[i] * factor * w.v[i];
    return y;
  }

  // The norm factor of the whole row, whose segments are spread over the warps.
  static ZINC_DEVICE float norm_factor(const Vec8 (&x)[kSegmentsPerWarp], float* sums_of_squares, float eps) {
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      if (has_segment(i)) store_sum_squares(x[i], sums_of_squares + segment(i));
    }
    if (kSegments % 4 != 0 && threadIdx.x < 4u - kSegments % 4) sums_of_squares[kSegments + threadIdx.x] = 0;
    named_barrier_sync<kGemvThreads>(1);
    return rms_factor(reduce_sum_squares<kSegments>(sums_of_squares), kWidth, eps);
  }

  // A row normed as a whole. sums_of_squares: 2 * sums_of_squares_floats().
  template <class OverlappedWork>
  static ZINC_DEVICE void prepare_normed(const GemvInput& p, const float* norm_weight, const ResidualWeights& weights,
                                         u8* shared, float* sums_of_squares, int begin, int end,
                                         const OverlappedWork& overlapped_work) {
    Vec8 x[kSegmentsPerWarp], residual[kAddsResidual ? kSegmentsPerWarp : 1];
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      if (has_segment(i)) x[i] = load_row(p.x, element(i));
    }
    if constexpr (kAddsResidual) {
#pragma unroll
      for (int i = 0; i < kSegmentsPerWarp; ++i) {
        if (has_segment(i)) residual[i] = load(p.residual, element(i));
      }
    }
    overlapped_work();
    if constexpr (kAddsResidual) {
      const float factor = norm_factor(x, sums_of_squares + sums_of_squares_floats(kShape), p.post_norm_eps);
#pragma unroll
      for (int i = 0; i < kSegmentsPerWarp; ++i) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float y = x[i].v[k] * factor * weights.post_norm[i].v[k];
          x[i].v[k] = (residual[i].v[k] + y) * weights.scale;
        }
        const bool is_own = static_cast<u32>(segment(i)) % gridDim.x == blockIdx.x;
        if (has_segment(i) && is_own && is_in_bounds(element(i))) store_vec8(p.residual_out, element(i), kWidth, x[i]);
      }
    }
    cp_async_wait<0>();
    const float factor = norm_factor(x, sums_of_squares, p.norm_eps);
    const float* weight = kWidth % 4 == 0 ? norm_weight : p.norm_weight;
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      const int s = segment(i);
      if (has_segment(i) && s >= begin && s < end) write(scale_by_norm(x[i], factor, weight, element(i)), s, shared);
    }
  }

  template <class OverlappedWork>
  static ZINC_DEVICE void prepare_plain(const GemvInput& p, u8* shared, int begin, int end,
                                        const OverlappedWork& overlapped_work) {
    constexpr bool kHasSharedRow =
        kShape.n_combined > 0 && kShape.has_second_matrix != 0;  // the last row is p.shared_expert_x
    constexpr int kRows = kShape.n_combined > 0 ? kShape.n_combined + (kHasSharedRow ? 1 : 0) : 1;
    constexpr bool kIsHeads = kShape.input == kGatedHeadsInput;
    constexpr bool kIsOnePass = kBlockSegmentsPerWarp <= kMaxInFlight;
    int first = begin + warp_id();
#pragma unroll 1
    do {
      Vec8 x[kInFlight], gate[kIsHeads ? kInFlight : 1];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int index = first + i * kGemvWarps, r = kRows > 1 ? index / kSegments : 0, s = index - r * kSegments;
        if (index >= end) continue;
        const bool is_shared = kHasSharedRow && r == kRows - 1;
        if constexpr (B > 0 && kShape.input == kQuantizedInput) {
          if (!is_shared) {
            copy(p.q8, r, s, reinterpret_cast<Q8Segment*>(shared)[index]);
            continue;
          }
        }
        const int offset = s * kSegmentElems + lane_id() * 8;
        x[i] = load_row(is_shared ? p.shared_expert_x : p.x + r * kWidth, offset);
        if constexpr (kIsHeads) gate[i] = load(p.gate, offset);
      }
      if (kIsOnePass || first < begin + kGemvWarps) overlapped_work();
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int index = first + i * kGemvWarps;
        if (index >= end) continue;
        if (B > 0 && kShape.input == kQuantizedInput && !(kHasSharedRow && index / kSegments == kRows - 1)) continue;
        if constexpr (kIsHeads) x[i] = gated_heads(p, x[i], gate[i], index * kSegmentElems + lane_id() * 8);
        write(x[i], index, shared);
      }
      first += kInFlight * kGemvWarps;
    } while (!kIsOnePass && first < end);
  }

  // A row of floats without norm or gate, whatever kShape.input is.
  static ZINC_DEVICE void prepare_as_is(const float* x, u8* shared) {
    for (int s = warp_id(); s < kSegments; s += kGemvWarps)
      write(load_row(x, s * kSegmentElems + lane_id() * 8), s, shared);
    named_barrier_sync<kGemvThreads>(1);
  }

  // Segments begin .. end - 1, counted over all rows. overlapped_work: work of each thread while its loads are in
  // flight.
  template <class OverlappedWork>
  static ZINC_DEVICE void prepare(const GemvInput& p, const float* norm_weight, const ResidualWeights& weights,
                                  u8* shared, float* sums_of_squares, int begin, int end,
                                  const OverlappedWork& overlapped_work) {
    if constexpr (kIsNormed) {
      prepare_normed(p, norm_weight, weights, shared, sums_of_squares, begin, end, overlapped_work);
    } else {
      prepare_plain(p, shared, begin, end, overlapped_work);
    }
    named_barrier_sync<kGemvThreads>(1);
  }
};

}  // namespace zinc::simt
