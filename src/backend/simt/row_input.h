// What a block of product.cu multiplies with: rows of activations in shared memory, rounded in segments or as floats,
// summed, normed and gated on the way. Each block makes them for itself. A program that includes this begins with
// kShape.
#pragma once

#include "backend/simt/half_row.h"

namespace zinc::simt {

constexpr int kProductThreads = 64 * kShape.n_pairs, kProductWarps = 2 * kShape.n_pairs;  // that multiply

// How the row lies, and the warps' segments of one that is normed: warp w has w, w + kProductWarps, ...
struct RowPlaces {
  static constexpr int kWidth = kShape.n_in, kSegments = segments_of(kWidth);
  static constexpr bool kIsNormed = is_normed(kShape.input), kIsSummed = kShape.input == kSummedRow;
  static constexpr int kOfWarp = (kSegments + kProductWarps - 1) / kProductWarps;
  static constexpr bool kIsEven = kSegments % kProductWarps == 0;

  static ZINC_DEVICE bool has_segment(int i) { return kIsEven || segment(i) < kSegments; }
  static ZINC_DEVICE int segment(int i) { return warp_id() + i * kProductWarps; }
  static ZINC_DEVICE int place(int i) { return segment(i) * kSegmentElems + lane_id() * 8; }
  // Numbers past the row's end are zero.
  static ZINC_DEVICE bool is_inside(int at) { return kWidth % kSegmentElems == 0 || at < kWidth; }
  static ZINC_DEVICE Eight load(const float* row, int at) {
    if constexpr (kWidth % 8 == 0) {
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (is_inside(at)) {
        a = reinterpret_cast<const float4*>(row + at)[0];
        b = reinterpret_cast<const float4*>(row + at)[1];
      }
      return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
      return load_eight(row, at, kWidth);
    }
  }
};

// What a summed row is multiplied with, a lane's of its warp's segments: there before the row is.
struct SumWeights : RowPlaces {
  Eight its[kIsSummed ? kOfWarp : 1];
  float scale;

  ZINC_DEVICE explicit SumWeights(const RowSource& p) {
    if constexpr (!kIsSummed) return;
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i) {
      its[i] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (p.sum_weight && has_segment(i)) its[i] = load(p.sum_weight, place(i));
    }
    scale = p.scale ? p.scale[0] : 1.0f;
  }
};

// B: the numbers to a scale, 0 for floats. By the threads that multiply, all of them. n_ranks: blocks that share out
// the segments; a spread class has all of them in each.
template <int B, int n_ranks = kShape.n_ranks>
struct RowInput : RowPlaces {
  // Segments of a warp under way: all there are, up to so many.
  static constexpr int kMostAtOnce = kShape.input == kHeadsRow ? 2 : 3;
  static constexpr int kRankInputs = n_ranks == kShape.n_ranks ? most_rank_inputs(kShape) : kSegments;
  static constexpr int kEvenly = (kRankInputs + kProductWarps - 1) / kProductWarps;
  static constexpr int kAtOnce = kEvenly < kMostAtOnce ? kEvenly : kMostAtOnce;

  // Before the row is there. REQUIRES: aligned norms.
  static ZINC_DEVICE void fetch_norm(const RowSource& p, float* norm) {
    if constexpr (kIsNormed && kWidth % 4 == 0) {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) * 4; i < kWidth; i += kProductThreads * 4) {
        if (p.norm_weight) {
          copy_16(norm + i, p.norm_weight + i);
        } else {
          *reinterpret_cast<float4*>(norm + i) = make_float4(1, 1, 1, 1);
        }
      }
      end_copies();
    }
  }

  // A row that is read before the wait does not come from a cache of its multiprocessor.
  static ZINC_DEVICE Eight load_row(const float* row, int at) {
    if constexpr (kShape.is_early == 0 || kWidth % 8 != 0) return load(row, at);
    float4 a = make_float4(0, 0, 0, 0), b = a;
    if (is_inside(at)) {
      a = __ldcg(reinterpret_cast<const float4*>(row + at));
      b = __ldcg(reinterpret_cast<const float4*>(row + at) + 1);
    }
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  // The lane's eight in order; or a group's as its nibbles lie, where lanes two apart have what goes together.
  static ZINC_DEVICE void put(SharedX& to, const int2& words) {
    int2* places = reinterpret_cast<int2*>(to.quants);
    if constexpr (B != kGroupElems || !all_take_nibble_order(Formats{})) {
      places[lane_id()] = words;
    } else {
      const int lane = lane_id(), is_late = lane & 2;
      const int other = __shfl_xor_sync(0xFFFFFFFFu, is_late ? words.x : words.y, 2);
      const u32 first = static_cast<u32>(is_late ? other : words.x),
                second = static_cast<u32>(is_late ? words.y : other);
      places[(lane & ~3) + 2 * (lane & 1) + is_late / 2] = make_int2(
          static_cast<int>(__byte_perm(first, second, 0x5140u)), static_cast<int>(__byte_perm(first, second, 0x7362u)));
    }
  }
  static ZINC_DEVICE void write(const Eight& x, int segment, u8* shared) {
    const int lane = lane_id();
    if constexpr (B == 0) {
      store_eight(reinterpret_cast<float*>(shared) + segment * kSegmentElems, lane * 8, kSegmentElems, x);
    } else {
      SharedX& to = reinterpret_cast<SharedX*>(shared)[segment];
      const RoundedEight r = round_eight(x, B);
      put(to, r.words);
      if (lane % 4 == 0) {
        to.scales[lane / 4] = r.scale;
        to.sums[lane / 4] = r.sum;
      }
    }
  }
  // What was rounded before.
  static ZINC_DEVICE void copy(const Rounded& x, long long row, int s, SharedX& to) {
    const int lane = lane_id();
    put(to, reinterpret_cast<const int2*>(x.q + row * x.stride + s * kSegmentElems)[lane]);
    const long long group = row * (x.stride / kGroupElems) + s * kSegmentGroups + lane;
    if (lane < kSegmentGroups) {
      to.sums[lane] = x.sum[group];
      to.scales[lane] = B == kGroupElems ? x.scale[group] : x.scale[row * (x.stride / kSegmentElems) + s];
    }
  }
  // A segment of heads: each normed, then gated.
  static ZINC_DEVICE Eight gated_heads(const RowSource& p, const Eight& x, const Eight& gate, int at) {
    constexpr int kHead = kShape.head_dim > 0 ? kShape.head_dim : 8;
    const float sum = lanes_sum(squares(x, 0), kHead / 8);
    Eight y = normed(x, rms_factor(sum, kHead, p.norm_eps), p.norm_weight, at % kHead, kHead);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(kShape.gate_act, gate.v[i], y.v[i]);
    return y;
  }

  // x * factor * weight, as normed() has it.
  static ZINC_DEVICE Eight times_weight(const Eight& x, float factor, const float* weight, int at) {
    if (kWidth % 4 != 0 && !weight) return normed(x, factor, weight, at, kWidth);
    const Eight w = load(weight, at);
    Eight y;
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = x.v[i] * factor * w.v[i];
    return y;
  }

  // A norm's factor of the row whose segments the warps have, all of it.
  static ZINC_DEVICE float factor_of(const Eight (&x)[kOfWarp], float* room, float eps) {
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i) {
      if (has_segment(i)) put_squares(x[i], room + segment(i));
    }
    if (kSegments % 4 != 0 && threadIdx.x < 4u - kSegments % 4) room[kSegments + threadIdx.x] = 0;
    meet<kProductThreads>(1);
    return rms_factor(sum_squares<kSegments>(room), kWidth, eps);
  }

  // The one row, normed as a whole. room: squares_floats(), twice.
  template <class Meanwhile>
  static ZINC_DEVICE void prepare_normed(const RowSource& p, const float* norm, const SumWeights& weights, u8* shared,
                                         float* room, int begin, int end, const Meanwhile& meanwhile) {
    Eight x[kOfWarp], residual[kIsSummed ? kOfWarp : 1];
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i) {
      if (has_segment(i)) x[i] = load_row(p.x, place(i));
    }
    if constexpr (kIsSummed) {
#pragma unroll
      for (int i = 0; i < kOfWarp; ++i) {
        if (has_segment(i)) residual[i] = load(p.residual, place(i));
      }
    }
    meanwhile();
    if constexpr (kIsSummed) {
      const float factor = factor_of(x, room + squares_floats(kShape), p.sum_eps);
#pragma unroll
      for (int i = 0; i < kOfWarp; ++i) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float y = x[i].v[k] * factor * weights.its[i].v[k];
          x[i].v[k] = (residual[i].v[k] + y) * weights.scale;
        }
        const bool is_own = static_cast<u32>(segment(i)) % gridDim.x == blockIdx.x;
        if (has_segment(i) && is_own && is_inside(place(i))) store_eight(p.sum, place(i), kWidth, x[i]);
      }
    }
    await_copies<0>();
    const float factor = factor_of(x, room, p.norm_eps);
    const float* weight = kWidth % 4 == 0 ? norm : p.norm_weight;
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i) {
      const int s = segment(i);
      if (has_segment(i) && s >= begin && s < end) write(times_weight(x[i], factor, weight, place(i)), s, shared);
    }
  }

  template <class Meanwhile>
  static ZINC_DEVICE void prepare_plain(const RowSource& p, u8* shared, int begin, int end,
                                        const Meanwhile& meanwhile) {
    constexpr bool kIsApart = kShape.n_mixed > 0 && kShape.has_last != 0;  // the last row lies elsewhere
    constexpr int kRows = kShape.n_mixed > 0 ? kShape.n_mixed + (kIsApart ? 1 : 0) : 1;
    constexpr bool kIsHeads = kShape.input == kHeadsRow;
    constexpr bool kIsOnePass = kEvenly <= kMostAtOnce;
    int first = begin + warp_id();
#pragma unroll 1
    do {
      Eight x[kAtOnce], gate[kIsHeads ? kAtOnce : 1];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i * kProductWarps, r = kRows > 1 ? index / kSegments : 0, s = index - r * kSegments;
        if (index >= end) continue;
        const bool is_last = kIsApart && r == kRows - 1;
        if constexpr (B > 0 && kShape.input == kRoundedRow) {
          if (!is_last) {
            copy(p.rounded, r, s, reinterpret_cast<SharedX*>(shared)[index]);
            continue;
          }
        }
        const int at = s * kSegmentElems + lane_id() * 8;
        x[i] = load_row(is_last ? p.last_x : p.x + r * kWidth, at);
        if constexpr (kIsHeads) gate[i] = load(p.gate, at);
      }
      if (kIsOnePass || first < begin + kProductWarps) meanwhile();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i * kProductWarps;
        if (index >= end) continue;
        if (B > 0 && kShape.input == kRoundedRow && !(kIsApart && index / kSegments == kRows - 1)) continue;
        if constexpr (kIsHeads) x[i] = gated_heads(p, x[i], gate[i], index * kSegmentElems + lane_id() * 8);
        write(x[i], index, shared);
      }
      first += kAtOnce * kProductWarps;
    } while (!kIsOnePass && first < end);
  }

  // A row of floats that is neither normed nor gated, whatever the program's is.
  static ZINC_DEVICE void prepare_as_is(const float* x, u8* shared) {
    for (int s = warp_id(); s < kSegments; s += kProductWarps)
      write(load_row(x, s * kSegmentElems + lane_id() * 8), s, shared);
    meet<kProductThreads>(1);
  }

  // Segments begin .. end - 1, those of all rows counted. meanwhile: what each thread does when it has asked for them.
  template <class Meanwhile>
  static ZINC_DEVICE void prepare(const RowSource& p, const float* norm, const SumWeights& weights, u8* shared,
                                  float* room, int begin, int end, const Meanwhile& meanwhile) {
    if constexpr (kIsNormed) {
      prepare_normed(p, norm, weights, shared, room, begin, end, meanwhile);
    } else {
      prepare_plain(p, shared, begin, end, meanwhile);
    }
    meet<kProductThreads>(1);
  }
};

}  // namespace zinc::simt
