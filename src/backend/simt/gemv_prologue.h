// Prologues of the gemv kernels, a type each: they load the activation rows, apply residual add, norm or gate, quantize
// them and store them in shared memory. Each block does this on its own. REQUIRES: kShape, kPdl.
#pragma once

#include "backend/simt/gemv_dot.h"
#include "backend/simt/gemv_tiles.h"

namespace zinc::simt {

// ---- rows ----

// Layout of the rows: the block's columns, or its token's row. Of normed rows, warp w has segments w, w + kGemvWarps,
// ..., counted over all columns.
struct RowLayout {
  static constexpr int kWidth = kShape.n_in, kSegments = kInputSegments;
  static constexpr int kSegmentsPerWarp = (kColumns * kSegments + kGemvWarps - 1) / kGemvWarps;
  static constexpr bool kSegmentsDivide = kColumns * kSegments % kGemvWarps == 0;  // all warps have equally many

  static ZINC_DEVICE bool has_segment(int i) { return kSegmentsDivide || index(i) < kColumns * kSegments; }
  static ZINC_DEVICE int index(int i) { return warp_id() + i * kGemvWarps; }
  static ZINC_DEVICE int column(int i) { return kColumns == 1 ? 0 : index(i) / kSegments; }
  static ZINC_DEVICE int segment(int i) { return index(i) - column(i) * kSegments; }
  static ZINC_DEVICE int element(int i) { return segment(i) * kSegmentElems + lane_id() * 8; }
  // The row of a column, of [rows][kWidth].
  static ZINC_DEVICE const float* row(const float* rows, int column) {
    return kColumns == 1 && kTokens == 1 ? rows : rows + static_cast<long long>(block_token() + column) * kWidth;
  }
  // Elements past the end of the row are zero.
  static ZINC_DEVICE bool is_in_bounds(int offset) { return kWidth % kSegmentElems == 0 || offset < kWidth; }
  template <bool bypasses_l1 = false>
  static ZINC_DEVICE Vec8 load(const float* row, int offset) {
    if constexpr (kWidth % 8 == 0) {
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (is_in_bounds(offset)) {
        const float4* from = reinterpret_cast<const float4*>(row + offset);
        a = bypasses_l1 ? __ldcg(from) : from[0];
        b = bypasses_l1 ? __ldcg(from + 1) : from[1];
      }
      return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
      return load_vec8(row, offset, kWidth);
    }
  }
  // A row read before the wait bypasses L1, which may be stale.
  static ZINC_DEVICE Vec8 load_row(const float* row, int offset) {
    return load<kPdl.reads_row_before_wait != 0>(row, offset);
  }
};

// The activations in shared memory, quantized in blocks of B elements; 0: floats. The columns of a segment are
// together.
template <int B>
struct SharedRow {
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
  static ZINC_DEVICE void write(const Vec8& x, int column, int segment, u8* shared) {
    const int lane = lane_id();
    if constexpr (B == 0) {
      const int at = kColumns == 1 ? segment : segment * kColumns + column;
      store_vec8(reinterpret_cast<float*>(shared) + at * kSegmentElems, lane * 8, kSegmentElems, x);
    } else {
      const QuantizedVec8 r = quantize_vec8(x, B);
      if constexpr (!kUsesMma) {
        Q8Segment& to = reinterpret_cast<Q8Segment*>(shared)[kColumns == 1 ? segment : segment * kColumns + column];
        store_words(to, r.words);
        if (lane % 4 == 0) {
          to.scales[lane / 4] = r.scale;
          to.sums[lane / 4] = r.sum;
        }
      } else {
        Q8ColumnSegment<kColumns>& to = reinterpret_cast<Q8ColumnSegment<kColumns>*>(shared)[segment];
        to.set_words(column, lane, r.words);
        if (lane % 4 == 0) to.set_group(column, lane / 4, r.scale, r.sum);
      }
    }
  }
  // Segment s of an already quantized row.
  static ZINC_DEVICE void copy(const Q8Activation& x, long long row, int s, int column, int segment, u8* shared) {
    const int lane = lane_id();
    const long long group = row * (x.stride / kGroupElems) + s * kSegmentGroups + lane;
    const signed char* from = x.q + row * x.stride + s * kSegmentElems;
    float scale = 0;
    int sum = 0;
    if (lane < kSegmentGroups) {
      sum = x.sum[group];
      scale = B == kGroupElems ? x.scale[group] : x.scale[row * (x.stride / kSegmentElems) + s];
    }
    if constexpr (!kUsesMma) {
      Q8Segment& to = reinterpret_cast<Q8Segment*>(shared)[kColumns == 1 ? segment : segment * kColumns + column];
      store_words(to, load_words(x, from));
      if (lane < kSegmentGroups) {
        to.sums[lane] = sum;
        to.scales[lane] = scale;
      }
    } else {
      Q8ColumnSegment<kColumns>& to = reinterpret_cast<Q8ColumnSegment<kColumns>*>(shared)[segment];
      if (!x.is_in_mma_order) {
        to.set_words(column, lane, reinterpret_cast<const int2*>(from)[lane]);
      } else if (lane < 2 * kSegmentGroups) {  // that order, column by column
        to.quants[(lane / 4 * kColumns + column) * 4 + lane % 4] = reinterpret_cast<const uint4*>(from)[lane];
      }
      if (lane < kSegmentGroups) to.set_group(column, lane, scale, sum);
    }
  }

 private:
  // The lane's eight, of a row that may be in mma order.
  static ZINC_DEVICE int2 load_words(const Q8Activation& x, const signed char* segment) {
    if (!x.is_in_mma_order) return reinterpret_cast<const int2*>(segment)[lane_id()];
    const int* words = reinterpret_cast<const int*>(segment);
    const int group = lane_id() / 4, word = lane_id() % 4 * 2;
    return make_int2(words[mma_word(group, word)], words[mma_word(group, word + 1)]);
  }
};

// Segments begin .. end - 1 of each column (counted over all input rows of MoE down), by a source's load() and store():
// a warp has up to Source::kMaxInFlight in flight. n: segments of a column, at most. overlapped_work: work of each
// thread meanwhile.
template <int B, int n, class Source, class OverlappedWork>
ZINC_DEVICE void prepare_segments(const Source& source, u8* to, int begin, int end,
                                  const OverlappedWork& overlapped_work) {
  constexpr int kPerWarp = (kColumns * n + kGemvWarps - 1) / kGemvWarps;
  constexpr bool kIsOnePass = kPerWarp <= Source::kMaxInFlight;
  constexpr int kInFlight = kIsOnePass ? kPerWarp : Source::kMaxInFlight;
  int first = warp_id();
  const auto column = [&](int i) { return kColumns == 1 ? 0 : (first + i * kGemvWarps) / n; };
  const auto segment = [&](int i) { return begin + first + i * kGemvWarps - column(i) * n; };
  const auto exists = [&](int i) { return segment(i) < end && (kColumns == 1 || column(i) < kColumns); };
#pragma unroll 1
  do {
    typename Source::Segment loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (exists(i)) source.template load<B>(column(i), segment(i), loaded[i], to);
    }
    if (kIsOnePass || first < kGemvWarps) overlapped_work();
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (exists(i)) source.template store<B>(column(i), segment(i), loaded[i], to);
    }
    first += kInFlight * kGemvWarps;
  } while (!kIsOnePass && first < (kColumns == 1 ? end - begin : kColumns * n));
}

// ---- prologues: begin() before the wait, prepare() by all gemv threads ----

// Of rows whose segments do not depend on each other: Source loads and stores them.
template <class Source>
struct SegmentsPrologue {
  using Input = typename Source::Input;
  ZINC_DEVICE void begin(const Input&, u8*) {}
  template <int B, int n, class OverlappedWork>
  ZINC_DEVICE void prepare(const Input& p, u8*, u8* to, int begin, int end, const OverlappedWork& work) const {
    prepare_segments<B, n>(Source{{}, p}, to, begin, end, work);
  }
};

struct PlainSegments : RowLayout {
  using Input = PlainInput;
  using Segment = Vec8;
  static constexpr int kMaxInFlight = kUsesMma ? 4 : kColumns == 1 ? 3 : 2;
  const Input& p;
  template <int B>
  ZINC_DEVICE void load(int column, int s, Vec8& x, u8*) const {
    x = load_row(row(p.x, column), s * kSegmentElems + lane_id() * 8);
  }
  template <int B>
  ZINC_DEVICE void store(int column, int s, const Vec8& x, u8* to) const {
    SharedRow<B>::write(x, column, s, to);
  }
};
struct PlainPrologue : SegmentsPrologue<PlainSegments> {};

struct QuantizedSegments : RowLayout {
  using Input = QuantizedInput;
  struct Segment {};
  static constexpr int kMaxInFlight = 3;
  const Input& p;
  template <int B>
  ZINC_DEVICE void load(int column, int s, Segment&, u8* to) const {
    if constexpr (B > 0) SharedRow<B>::copy(p.q8, block_token() + column, s, column, s, to);
  }
  template <int B>
  ZINC_DEVICE void store(int, int, const Segment&, u8*) const {}
};
// Rows that an earlier launch has quantized.
struct QuantizedPrologue : SegmentsPrologue<QuantizedSegments> {};

template <int head_dim, int act>
struct GatedHeadsSegments : RowLayout {
  using Input = GatedHeadsInput;
  struct Segment {
    Vec8 x, gate;
  };
  static constexpr int kMaxInFlight = 2;
  const Input& p;
  template <int B>
  ZINC_DEVICE void load(int column, int s, Segment& loaded, u8*) const {
    const int offset = s * kSegmentElems + lane_id() * 8;
    loaded.x = load_row(row(p.heads.x, column), offset);
    loaded.gate = RowLayout::load(row(p.gate, column), offset);
  }
  template <int B>
  ZINC_DEVICE void store(int column, int s, const Segment& loaded, u8* to) const {
    const int offset = s * kSegmentElems + lane_id() * 8;
    const float factor = rms_factor(warp_sum(sum_squares(loaded.x, 0), head_dim / 8), head_dim, p.heads.norm_eps);
    Vec8 y = normed(loaded.x, factor, p.heads.norm_weight, offset % head_dim, head_dim);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(act, loaded.gate.v[i], y.v[i]);
    SharedRow<B>::write(y, column, s, to);
  }
};
// RMSNormGated: a norm per head, then the output gate.
template <int head_dim, int act>
struct GatedHeadsPrologue : SegmentsPrologue<GatedHeadsSegments<head_dim, act>> {};

// Rows normed as a whole. Their weights and sums of squares are in shared memory (GemvSmem).
struct NormPrologue : RowLayout {
  using Input = NormInput;

  // REQUIRES: aligned norm weights.
  ZINC_DEVICE void begin(const Input& p, u8* shared) {
    if constexpr (kWidth % 4 == 0) {
      float* norm = reinterpret_cast<float*>(shared + kSmem.norm_weight);
#pragma unroll(kHasBulkCopies ? 1 : 4)
      for (int i = static_cast<int>(threadIdx.x) * 4; i < kWidth; i += kGemvThreads * 4) {
        if (kHasBulkCopies && p.norm_weight) {
          cp_async_16(norm + i, p.norm_weight + i);
        } else {  // cp.async would be waited for together with the weights of the matrix
          *reinterpret_cast<float4*>(norm + i) =
              p.norm_weight ? __ldg(reinterpret_cast<const float4*>(p.norm_weight + i)) : make_float4(1, 1, 1, 1);
        }
      }
      if constexpr (kHasBulkCopies) cp_async_commit();
    }
  }
  template <int B, int n, class OverlappedWork>
  ZINC_DEVICE void prepare(const Input& p, u8* shared, u8* to, int begin, int end, const OverlappedWork& work) const {
    Vec8 x[kSegmentsPerWarp];
    load_segments(p.x, x);
    work();
    norm_segments<B>(p, x, shared, to, begin, end);
  }

 protected:
  static ZINC_DEVICE float* sums_of_squares(u8* shared) {
    return reinterpret_cast<float*>(shared + kSmem.sums_of_squares);
  }
  static ZINC_DEVICE void load_segments(const float* rows, Vec8 (&x)[kSegmentsPerWarp]) {
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      if (has_segment(i)) x[i] = load_row(row(rows, column(i)), element(i));
    }
  }
  // The sums of squares of the rows, whose segments are spread over the warps. sums: [kColumns][kSums].
  static constexpr int kSums = sums_of_squares_floats(kShape);
  static ZINC_DEVICE void sum_rows(const Vec8 (&x)[kSegmentsPerWarp], float* sums) {
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      if (has_segment(i)) store_sum_squares(x[i], sums + column(i) * kSums + segment(i));
    }
    constexpr int kPadding = kSums - kSegments, kPaddingOrOne = kPadding > 0 ? kPadding : 1;
    if (const int i = static_cast<int>(threadIdx.x); i < kColumns * kPadding) {
      sums[i / kPaddingOrOne * kSums + kSegments + i % kPaddingOrOne] = 0;
    }
    named_barrier_sync<kGemvThreads>(1);
  }
  static ZINC_DEVICE float norm_factor(const float* sums, int column, float eps) {
    return rms_factor(reduce_sum_squares<kSegments>(sums + column * kSums), kWidth, eps);
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
  template <int B>
  static ZINC_DEVICE void norm_segments(const NormInput& p, const Vec8 (&x)[kSegmentsPerWarp], u8* shared, u8* to,
                                        int begin, int end) {
    if constexpr (kHasBulkCopies) cp_async_wait<0>();
    const float* sums = sums_of_squares(shared);
    sum_rows(x, sums_of_squares(shared));
    const float factor = kColumns == 1 ? norm_factor(sums, 0, p.norm_eps) : 0;
    const float* weight = kWidth % 4 == 0 ? reinterpret_cast<const float*>(shared + kSmem.norm_weight) : p.norm_weight;
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      const int s = segment(i);
      if (has_segment(i) && s >= begin && s < end) {
        const float own = kColumns == 1 ? factor : norm_factor(sums, column(i), p.norm_eps);
        SharedRow<B>::write(scale_by_norm(x[i], own, weight, element(i)), column(i), s, to);
      }
    }
  }
};

// The residual add before the norm, of one row. The blocks of the grid together store the sum.
struct NormResidualPrologue : NormPrologue {
  using Input = NormResidualInput;
  Vec8 post_norm[kSegmentsPerWarp];  // a lane's share
  float scale;

  ZINC_DEVICE void begin(const Input& p, u8* shared) {
    NormPrologue::begin(p.row, shared);
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      post_norm[i] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (p.post_norm_weight && has_segment(i)) post_norm[i] = load(p.post_norm_weight, element(i));
    }
    scale = p.scale ? p.scale[0] : 1.0f;
  }
  template <int B, int n, class OverlappedWork>
  ZINC_DEVICE void prepare(const Input& p, u8* shared, u8* to, int begin, int end, const OverlappedWork& work) const {
    Vec8 x[kSegmentsPerWarp], residual[kSegmentsPerWarp];
    load_segments(p.row.x, x);
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
      if (has_segment(i)) residual[i] = load(p.residual, element(i));
    }
    work();
    static_assert(n > 0 && kColumns == 1 && kTokens == 1);
    float* sums = sums_of_squares(shared) + kSums;
    sum_rows(x, sums);
    const float factor = norm_factor(sums, 0, p.post_norm_eps);
#pragma unroll
    for (int i = 0; i < kSegmentsPerWarp; ++i) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float y = x[i].v[k] * factor * post_norm[i].v[k];
        x[i].v[k] = (residual[i].v[k] + y) * scale;
      }
      const bool is_own = static_cast<u32>(segment(i)) % gridDim.x == blockIdx.x;
      if (has_segment(i) && is_own && is_in_bounds(element(i))) store_vec8(p.residual_out, element(i), kWidth, x[i]);
    }
    norm_segments<B>(p.row, x, shared, to, begin, end);
  }
};

}  // namespace zinc::simt
