// out[o] = sum_k x[k] * weight[o, k]: matrices times one row of activations, as fast as weights arrive. A program of
// this file begins with the formats of its matrices, as Formats, and with kShape: what it is compiled for.
// A strip is eight rows, a quarter of a panel; four lanes share a row's segment. A block has neighbouring strips, its
// warps their segments in turn. Each lane keeps the next few segments in registers: the first are on their way before
// the block waits for its activations, which it norms and rounds for itself. Segments' values are linear.cu's to the
// bit, and are added in order by one thread per output.
#include "backend/simt/floating.h"
#include "backend/simt/routing.h"
#include "backend/simt/row_input.h"

namespace zinc::simt {

constexpr int kInputSegments = segments_of(kShape.n_in), kLastGroups = last_groups_of(kShape.n_in);
constexpr int kUnits = units_of(kShape);  // segments of an output's strip
constexpr ProductRoom kRoom = room_of(kShape);

// The experts of the row, in shared memory.
struct Used {
  int ids[kMaxUsed];
  float weights[kMaxUsed];
};

ZINC_DEVICE int groups_of(int s) { return kLastGroups == kSegmentGroups || s + 1 < kInputSegments ? kSegmentGroups : kLastGroups; }

// ---- a lane's part of a strip's segment ----

enum LaneKind : int { kWholeScales, kHalfScales, kFloats };
template <class F>
constexpr LaneKind kLaneKind = F::kRoundedBlock == 0 ? kFloats : F::kHalfScales ? kHalfScales : kWholeScales;
template <class F, LaneKind kind = kLaneKind<F>>
struct StripLane {
  typename F::Header header;
  typename F::Raw raw[2];
  ZINC_DEVICE void load_header(const u8* segment, int row, int) { header = F::header(segment, row); }
  ZINC_DEVICE int scaled(int g, int, int low, int high) const { return header.scale(g) * (low + high); }
};

// A scale for each half of a group: only the lane's four.
template <class F>
struct StripLane<F, kHalfScales> {
  u32 scales, d_bits;
  typename F::Raw raw[2];
  ZINC_DEVICE void load_header(const u8* segment, int row, int quarter) {
    scales = load_4(piece(segment, 0, 16, row) + 4 * quarter);
    d_bits = load_4(piece(segment, 16, 4, row));
  }
  ZINC_DEVICE int scaled(int, int k, int low, int high) const {
    return static_cast<signed char>(scales >> 16 * k & 255u) * low +
           static_cast<signed char>(scales >> (16 * k + 8) & 255u) * high;
  }
};

// Nothing: floats are read where they lie.
template <class F>
struct StripLane<F, kFloats> {};

template <class F>
ZINC_DEVICE void load_lane(StripLane<F>& lane, const u8* segment, int row, int n_groups) {
  const int quarter = lane_id() / kStripRows;
  lane.load_header(segment, row, quarter);
#pragma unroll
  for (int k = 0; k < 2; ++k) lane.raw[k] = F::group(segment, row, min(2 * quarter + k, n_groups - 1));
}

// The segment's value for the lane's row: in all of its lanes.
template <class F>
ZINC_DEVICE float dot_strip(const StripLane<F>& lane, const SharedX& x, int n_groups) {
  const int quarter = lane_id() / kStripRows;
  int dots[2], sums = 0, mins = 0;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int g = 2 * quarter + k;
    int w[8];
    F::words(lane.raw[k], w);
    const int low = dot_16(w, x.quants[2 * g]), high = dot_16(w + 4, x.quants[2 * g + 1]);
    if constexpr (F::kRoundedBlock == kGroupElems) {
      dots[k] = low + high;
    } else {
      sums += lane.scaled(g, k, low, high);
      if constexpr (F::kHasMin) mins += lane.header.min(g) * x.sums[g];
    }
  }
  if constexpr (F::kRoundedBlock == kGroupElems) {
    float value = 0;
#pragma unroll
    for (int g = 0; g < kSegmentGroups; ++g) {
      const int dot = __shfl_sync(0xFFFFFFFFu, dots[g % 2], lane_id() % kStripRows + kStripRows * (g / 2));
      if (g < n_groups) value = add_group<F>(lane.header, g, dot, x.scales[g], F::kHasMin ? x.sums[g] : 0, value);
    }
    return value;
  } else {
#pragma unroll
    for (int step = kStripRows; step < 32; step *= 2) {
      sums += __shfl_xor_sync(0xFFFFFFFFu, sums, step);
      if constexpr (F::kHasMin) mins += __shfl_xor_sync(0xFFFFFFFFu, mins, step);
    }
    if constexpr (F::kHalfScales) {
      return low_half(lane.d_bits) * static_cast<float>(sums) * x.scales[0];
    } else {
      return segment_value<F>(lane.header, sums, mins, x.scales[0]);
    }
  }
}

// A segment of floats, its products one after the other as in floating.h.
template <class F>
ZINC_DEVICE float dot_floats(const u8* segment, int row, const float* x, int n_groups) {
  float sum = 0;
#pragma unroll 2
  for (int g = 0; g < n_groups; ++g) {
    uint4 pieces[kGroupElems / F::kPieceElems];
#pragma unroll
    for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) pieces[j] = float_piece<F>(segment, row, g, j);
#pragma unroll
    for (int e = 0; e < kGroupElems; e += 4) {
      const float4 v = *reinterpret_cast<const float4*>(x + g * kGroupElems + e);
      const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sum = fmaf(F::element(pieces[(e + k) / F::kPieceElems], (e + k) % F::kPieceElems), values[k], sum);
      }
    }
  }
  return sum;
}

// ---- where a block's segments lie ----

// Strips of all parts of a class, or of all used experts, in one row; a strip's units are its segments, term by term.
// A term is one matrix of those an output is made of.
template <class F>
struct Walk {
  static constexpr bool kIsFloat = F::kRoundedBlock == 0;
  static constexpr int kRows = kIsFloat ? kPanelRows : kStripRows, kStripsOfPanel = kPanelRows / kRows;
  static constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
  static constexpr long long kPanelBytes =
      (kInputSegments - 1) * static_cast<long long>(kSegmentBytes) +
      kPanelRows * (F::kHeaderBytes + kLastGroups * F::kGroupBytes);
  const ProductParams& p;
  const int* experts;
  int first_part, begin, end;  // strips of the block

  ZINC_DEVICE Walk(const ProductParams& params, const ProductClass& c, const int* used)
      : p(params), experts(used), first_part(c.first_part) {
    const int block = static_cast<int>(blockIdx.x) - c.first_block;
    begin = static_cast<int>(static_cast<long long>(c.n_strips) * block / c.n_blocks);
    end = static_cast<int>(static_cast<long long>(c.n_strips) * (block + 1) / c.n_blocks);
  }
  ZINC_DEVICE int n_items() const { return (end - begin) * kUnits; }
  // Which part, or which used expert, a strip belongs to; its place there is left in `strip`.
  ZINC_DEVICE int owner(int& strip) const {
    if constexpr (kShape.n_used > 0) {
      const int n = p.parts[0].n_strips, used = strip / n;
      strip -= used * n;
      return used;
    } else {
      int i = first_part;
      while (strip >= p.parts[i].n_strips) strip -= p.parts[i++].n_strips;
      return i;
    }
  }
  // A lane's row is the result's plus its own.
  ZINC_DEVICE const u8* find(int item, int& row) const {
    int strip = begin + item / kUnits;
    const int unit = item % kUnits, term = unit / kInputSegments, s = unit % kInputSegments, which = owner(strip);
    const ProductPart& part = p.parts[kShape.n_used > 0 ? 0 : which];
    const u8* base = part.bytes;
    if constexpr (kShape.n_mixed > 0) {
      base = term == kShape.n_mixed ? part.last : base + experts[term] * part.matrix_bytes;
    } else {
      if (kShape.has_last && term == 1) base = part.last;
      if constexpr (kShape.n_used > 0) base += experts[which] * part.matrix_bytes;
    }
    row = strip % kStripsOfPanel * kRows;
    return base + strip / kStripsOfPanel * kPanelBytes + s * kSegmentBytes;
  }
};

// ---- results ----

ZINC_DEVICE float sum_of(const float* partial, int stride) {
  float sum = 0;
#pragma unroll(kInputSegments <= 16 ? kInputSegments : 8)
  for (int s = 0; s < kInputSegments; ++s) sum += partial[s * stride];
  return sum;
}

// One thread's output, from the segments of its terms, which lie `stride` floats apart.
template <class F>
struct Output {
  int o = -1, which = 0;
  float bias = 0, last_bias = 0, added = 0;  // loaded before the sums are there

  ZINC_DEVICE const ProductPart& part(const ProductParams& p) const { return p.parts[kShape.n_used > 0 ? 0 : which]; }
  ZINC_DEVICE void load(const Walk<F>& walk, int strip, int row) {
    const ProductParams& p = walk.p;
    if (strip >= walk.end) return;
    which = walk.owner(strip);
    o = strip * Walk<F>::kRows + row;
    const ProductPart& at = part(p);
    if (o >= at.n_out) {
      o = -1;
      return;
    }
    if (at.added) added = at.added[o];
    if constexpr (kShape.n_mixed == 0) {
      const long long place = (kShape.n_used > 0 ? static_cast<long long>(walk.experts[which]) * at.n_out : 0) + o;
      if (at.bias) bias = at.bias[place];
      if (at.last_bias) last_bias = at.last_bias[place];
    }
  }
  ZINC_DEVICE float plain(const Walk<F>& walk, const float* partial, int stride) const {
    const ProductPart& at = part(walk.p);
    float value = sum_of(partial, stride);
    if (kShape.n_used > 0 && at.expert_scale) value *= at.expert_scale[walk.experts[which]];
    if (at.bias) value += bias;
    if constexpr (kShape.act != kNoAct) {
      float last = sum_of(partial + kInputSegments * stride, stride);
      if (kShape.n_used > 0 && at.last_scale) last *= at.last_scale[walk.experts[which]];
      if (at.last_bias) last += last_bias;
      value = gated(kShape.act, value, last);
    }
    return value;
  }
  // As moe_combine adds experts up, and then the shared one.
  ZINC_DEVICE float mixed(const Walk<F>& walk, const Used& used, const float* partial, int stride) const {
    const ProductPart& at = part(walk.p);
    float sum = 0;
#pragma unroll 4
    for (int u = 0; u < kShape.n_mixed; ++u) {
      float value = sum_of(partial + u * kInputSegments * stride, stride);
      if (at.expert_scale) value *= at.expert_scale[used.ids[u]];
      if (at.bias) value += at.bias[static_cast<long long>(used.ids[u]) * at.n_out + o];
      sum = fmaf(value, used.weights[u], sum);
    }
    if constexpr (kShape.has_last != 0) {
      const float shared = sum_of(partial + kShape.n_mixed * kInputSegments * stride, stride);
      float gate = 0;
      for (int s = 0; s < kShape.n_gates; ++s) gate += walk.p.shared_gate[s];
      sum += gated(kSigmoid, gate, shared);
    }
    return sum;
  }
  ZINC_DEVICE void write(const Walk<F>& walk, const Used& used, const float* partial, int stride) const {
    if (o < 0) return;
    const ProductPart& at = part(walk.p);
    float value;
    if constexpr (kShape.n_mixed > 0) {
      value = mixed(walk, used, partial, stride);
    } else {
      value = plain(walk, partial, stride);
    }
    at.out[(kShape.n_used > 0 ? which * at.n_out : 0) + o] = at.added ? added + value : value;
  }
};

// ---- experts ----

// Every block for itself; the first leaves the result for later launches.
ZINC_DEVICE void find_experts(const RouteSource& p, Used& used) {
  constexpr int kExperts = kShape.n_experts > 0 ? kShape.n_experts : 1, kChosen = kShape.n_used > 0 ? kShape.n_used : 1;
  __shared__ float logits[kExperts];
  for (int e = static_cast<int>(threadIdx.x); e < kExperts; e += kThreads) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kInputSegments; ++s) sum += p.partial[s * kExperts + e];
    logits[e] = p.bias ? sum + p.bias[e] : sum;
  }
  __syncthreads();
  if (warp_id() == 0) {
    int id;
    float weight;
    route_known<kExperts, kChosen>(logits, kShape.route_mode, p.scale, id, weight);
    if (lane_id() < kChosen) {
      used.ids[lane_id()] = id;
      used.weights[lane_id()] = weight;
    }
  }
  __syncthreads();
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < kChosen) {
    p.ids[threadIdx.x] = used.ids[threadIdx.x];
    p.weights[threadIdx.x] = used.weights[threadIdx.x];
  }
}

ZINC_DEVICE void load_experts(const ProductParams& p, Used& used) {
  constexpr int kAll = kShape.n_mixed > 0 ? kShape.n_mixed : kShape.n_used;
  const int i = static_cast<int>(threadIdx.x);
  if (i < kAll) {
    used.ids[i] = p.expert_ids[i];
    used.weights[i] = p.mix_weights ? p.mix_weights[i] : 0.0f;
  }
  __syncthreads();
}

// ---- blocks ----

// A warp per segment of floats, whose sums are left as they are.
template <class F>
ZINC_DEVICE void spread_class(const ProductParams& p, const ProductClass& c, u8* shared) {
  constexpr int kSegmentBytes = Walk<F>::kSegmentBytes;
  __shared__ float sums[kWarps];
  const Walk<F> walk(p, c, nullptr);
  int unit = walk.begin + warp_id();
  const bool has_unit = unit < walk.end;
  const ProductPart& part = p.parts[has_unit ? walk.owner(unit) : c.first_part];
  const int panel = unit / kInputSegments, s = unit % kInputSegments;
  u8* slot = shared + kRoom.spread + warp_id() * kSegmentBytes;
  Gate* gate = reinterpret_cast<Gate*>(shared) + warp_id();
  if (has_unit && lane_id() == 0) {
    open_gate(gate);
    end_opening();
    copy_bulk(slot, part.bytes + panel * Walk<F>::kPanelBytes + static_cast<long long>(s) * kSegmentBytes,
              kPanelRows * groups_of(s) * F::kGroupBytes, gate);
  }
  __syncwarp();
  float* norm = reinterpret_cast<float*>(shared + kRoom.norm);
  RowInput<0>::fetch_norm(p.source, norm);
  wait_for_previous();
  RowInput<0>::prepare(p.source, norm, shared + kRoom.x, sums);
  if (!has_unit) return;
  wait_at(gate, 0);
  const int o = panel * kPanelRows + lane_id();
  const float* x = reinterpret_cast<const float*>(shared + kRoom.x) + s * kSegmentElems;
  if (o < part.n_out) part.out[s * part.n_out + o] = dot_floats<F>(slot, lane_id(), x, groups_of(s));
}

template <class F>
ZINC_DEVICE void multiply_class(const ProductParams& p, const ProductClass& c, u8* shared) {
  constexpr bool kIsFloat = Walk<F>::kIsFloat, kHasExperts = kShape.n_used + kShape.n_mixed > 0;
  constexpr int kRows = Walk<F>::kRows, kMostDepth = kIsFloat ? 1 : depth_of(F::kHeaderBytes, F::kGroupBytes);
  constexpr bool kIsShort = turns_of(kShape) <= kMostDepth;  // nothing is loaded but what is loaded ahead
  constexpr int kDepth = kIsShort ? turns_of(kShape) : kMostDepth;
  constexpr int kBatch = batch_strips(kShape, kMostDepth, kRows), kStride = kBatch * kRows;
  constexpr int kRounds = (kBatch * kUnits + kWarps - 1) / kWarps;
  __shared__ Used used;
  __shared__ float sums[kWarps];
  float* norm = reinterpret_cast<float*>(shared + kRoom.norm);
  float* partials = reinterpret_cast<float*>(shared + kRoom.partial);
  u8* x = shared + kRoom.x;
  using Input = RowInput<F::kRoundedBlock>;
  const Walk<F> walk(p, c, used.ids);
  const int n_items = walk.n_items();
  StripLane<F> ahead[kDepth];
  const auto load = [&](int j, int item) {
    if constexpr (!kIsFloat) {
      if (item >= n_items) return;
      int row;
      const u8* segment = walk.find(item, row);
      load_lane<F>(ahead[j], segment, row + lane_id() % kStripRows, groups_of(item % kUnits % kInputSegments));
    }
  };
  const auto load_first = [&] {
#pragma unroll
    for (int j = 0; j < kDepth; ++j) load(j, j * kWarps + warp_id());
  };
  Input::fetch_norm(p.source, norm);
  if constexpr (!kHasExperts) load_first();
  wait_for_previous();
  if constexpr (kHasExperts) {
    if constexpr (kShape.n_experts > 0) {
      find_experts(p.route, used);
    } else {
      load_experts(p, used);
    }
    load_first();
  }
  Input::prepare(p.source, norm, x, sums);
  int half = 0;
  for (int first = 0; first == 0 || (!kIsShort && first < walk.end - walk.begin); first += kBatch, half ^= 1) {
    float* partial = partials + half * kStride * kUnits;
    Output<F> output;
    output.load(walk, walk.begin + first + static_cast<int>(threadIdx.x) / kRows, static_cast<int>(threadIdx.x) % kRows);
    for (int round = 0; round < kRounds; round += kDepth) {
      if (first * kUnits + round * kWarps >= n_items) break;
#pragma unroll
      for (int j = 0; j < kDepth; ++j) {
        const int local = (round + j) * kWarps + warp_id(), item = first * kUnits + local;
        if (item >= n_items || local >= kBatch * kUnits) continue;
        const int unit = local % kUnits, s = unit % kInputSegments, at = kShape.n_mixed > 0 ? unit : s;
        float* to = partial + unit * kStride + local / kUnits * kRows;
        if constexpr (kIsFloat) {
          int row;
          const u8* segment = walk.find(item, row);
          to[lane_id()] = dot_floats<F>(segment, lane_id(), reinterpret_cast<const float*>(x) + at * kSegmentElems,
                                        groups_of(s));
        } else {
          const float value = dot_strip<F>(ahead[j], reinterpret_cast<const SharedX*>(x)[at], groups_of(s));
          if (lane_id() < kRows) to[lane_id()] = value;
          if constexpr (!kIsShort) load(j, item + kDepth * kWarps);
        }
      }
    }
    __syncthreads();
    output.write(walk, used, partial + threadIdx.x, kStride);
    for (int i = static_cast<int>(threadIdx.x) + kThreads; i < kStride; i += kThreads) {
      Output<F> further;
      further.load(walk, walk.begin + first + i / kRows, i % kRows);
      further.write(walk, used, partial + i, kStride);
    }
  }
}

template <class First, class... Rest>
ZINC_DEVICE void choose(const ProductParams& p, const ProductClass& c, u8* shared, int format, List<First, Rest...>) {
  if (sizeof...(Rest) == 0 || format == 0) {
    if constexpr (First::kRoundedBlock == 0) {
      if (c.is_spread) return spread_class<First>(p, c, shared);
    }
    return multiply_class<First>(p, c, shared);
  }
  if constexpr (sizeof...(Rest) > 0) choose(p, c, shared, format - 1, List<Rest...>{});
}

// Grid: blocks of all classes.
ZINC_KERNEL_2 product(__grid_constant__ const ProductParams p) {
  extern __shared__ float4 shared[];
  let_next_start();
  touch_params(p);
  int i = 0;
  while (i + 1 < p.n_classes && static_cast<int>(blockIdx.x) >= p.classes[i + 1].first_block) ++i;
  choose(p, p.classes[i], reinterpret_cast<u8*>(shared), p.classes[i].format, Formats{});
}

}  // namespace zinc::simt
