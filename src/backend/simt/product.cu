// out[o] = sum_k x[k] * weight[o, k]: matrices times one row of activations, as fast as weights arrive. A program of
// this file begins with the formats of its matrices, as Formats, and with kShape: what it is compiled for.
// A strip is eight or sixteen rows of a panel; four lanes share a row's segment. A block has neighbouring strips, its
// warps their segments in turn. Each warp has a ring of shared memory for its next segments: the first are on their way
// before the block waits for its activations, which it norms and rounds for itself. A warp takes two sets of eight rows
// at once where it can, a strip's or a gate's two matrices', which share what they are multiplied with. Segments'
// values are linear.cu's to the bit, and are added in order by one thread per output.
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

ZINC_DEVICE int groups_of(int s) {
  return kLastGroups == kSegmentGroups || s + 1 < kInputSegments ? kSegmentGroups : kLastGroups;
}

// ---- a lane's part of a strip's segment ----

ZINC_DEVICE int quarter() { return lane_id() / kLaneRows; }

enum LaneKind : int { kWholeScales, kSixBitScales, kHalfScales };
template <class F>
constexpr LaneKind kLaneKind = F::kHalfScales                                                           ? kHalfScales
                               : F::kRoundedBlock == kSegmentElems&& F::kHasMin&& F::kHeaderBytes == 16 ? kSixBitScales
                                                                                                        : kWholeScales;
// What a lane has of a set's segment, out of its slot (slot_bytes).
template <class F, LaneKind kind = kLaneKind<F>>
struct StripLane {
  typename F::Header header;
  ZINC_DEVICE void load_header(const u8* slot) { header = F::header(slot, lane_id() % kLaneRows); }
  // The products of the lane's two groups with their scales, and its minima with the sums of their inputs.
  ZINC_DEVICE void scale(const int (&low)[2], const int (&high)[2], const int2& xsums, int& sums, int& mins) const {
    const int g = 2 * quarter();
    sums = header.scale(g) * (low[0] + high[0]) + header.scale(g + 1) * (low[1] + high[1]);
    mins = 0;
    if constexpr (F::kHasMin) mins = header.min(g) * xsums.x + header.min(g + 1) * xsums.y;
  }
};

// Both groups' six bits at once: bytes of 16-bit halves (KScales).
template <class F>
struct StripLane<F, kSixBitScales> {
  typename F::Header header;
  ZINC_DEVICE void load_header(const u8* slot) { header = F::header(slot, lane_id() % kLaneRows); }
  ZINC_DEVICE void scale(const int (&low)[2], const int (&high)[2], const int2& xsums, int& sums, int& mins) const {
    const int shift = quarter() % 2 * 16;
    const u32 y = header.bytes.y >> shift, z = header.bytes.z >> shift, w = header.bytes.w >> shift;
    const bool is_early = quarter() < 2;
    const u32 scales = is_early ? y & 0x3F3Fu : (w & 0x0F0Fu) | (y >> 2 & 0x3030u);
    const u32 minima = is_early ? z & 0x3F3Fu : (w >> 4 & 0x0F0Fu) | (z >> 2 & 0x3030u);
    sums = static_cast<int>(scales & 255u) * (low[0] + high[0]) + static_cast<int>(scales >> 8) * (low[1] + high[1]);
    mins = static_cast<int>(minima & 255u) * xsums.x + static_cast<int>(minima >> 8) * xsums.y;
  }
};

// A scale for each half of a group: only the lane's four.
template <class F>
struct StripLane<F, kHalfScales> {
  struct Header {
    u32 scales, d_bits;
    ZINC_DEVICE float d() const { return low_half(d_bits); }
  } header;
  ZINC_DEVICE void load_header(const u8* slot) {
    const int row = lane_id() % kLaneRows;
    header = {load_4(slot + row * 16 + 4 * quarter()), load_4(slot + kLaneRows * 16 + row * 4)};
  }
  ZINC_DEVICE int signed_byte(int i) const { return static_cast<int>(header.scales << (24 - 8 * i)) >> 24; }
  ZINC_DEVICE void scale(const int (&low)[2], const int (&high)[2], const int2&, int& sums, int& mins) const {
    sums = signed_byte(0) * low[0] + signed_byte(1) * high[0] + signed_byte(2) * low[1] + signed_byte(3) * high[1];
    mins = 0;
  }
};

// A slot's groups lie as a panel's do whose rows are the lanes, with two groups each.
template <class F>
ZINC_DEVICE u8* groups_in(u8* slot) {
  return slot + slot_header_bytes(F::kHeaderBytes) - kPanelRows * F::kHeaderBytes;
}

// Begins the copies of a set's segment, whose rows begin with `row` of the panel. The first lanes bring the headers.
template <class F>
ZINC_DEVICE void fill_slot(u8* slot, const u8* segment, int row, int n_groups) {
  constexpr int kHead = F::kHeaderBytes, kGroup = F::kGroupBytes, kMore = kGroup - 16;
  const int lane = lane_id(), of_set = lane % kLaneRows;
  row += of_set;
  if (lane < kLaneRows) {
    copy_async < kHead<16 ? kHead : 16>(slot + of_set * (kHead < 16 ? kHead : 16),
                                        piece(segment, 0, kHead < 16 ? kHead : 16, row));
    if constexpr (kHead == 20) copy_async<4>(slot + kLaneRows * 16 + of_set * 4, piece(segment, 16, 4, row));
    if constexpr (kHead == 32) copy_async<16>(piece(slot, 16, 16, of_set), piece(segment, 16, 16, row));
  }
  u8* groups = groups_in<F>(slot);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int from = kHead + min(2 * quarter() + k, n_groups - 1) * kGroup, to = kHead + k * kGroup;
    copy_async<16>(piece(groups, to, 16, lane), piece(segment, from, 16, row));
    if constexpr (kMore > 0)
      copy_async<kMore>(piece(groups, to + 16, kMore, lane), piece(segment, from + 16, kMore, row));
  }
}

// The products of a group's first and last 16 numbers. High nibbles of Q4_K stay where they are, 16 times as large.
template <class F>
ZINC_DEVICE void dot_group(const typename F::Raw& raw, const int4& x, const int4& y, int& low, int& high) {
  if constexpr (kLaneKind<F> == kSixBitScales && F::kGroupBytes == 16) {
    const u32 mask = 0x0F0F0F0Fu;
    low = dot_unsigned(
        raw.w & mask, x.w,
        dot_unsigned(raw.z & mask, x.z, dot_unsigned(raw.y & mask, x.y, dot_unsigned(raw.x & mask, x.x, 0))));
    high = dot_unsigned(raw.w & ~mask, y.w,
                        dot_unsigned(raw.z & ~mask, y.z,
                                     dot_unsigned(raw.y & ~mask, y.y, dot_unsigned(raw.x & ~mask, y.x, 0)))) >>
           4;
  } else {
    int w[8];
    F::words(raw, w);
    low = dot_16(w, x);
    high = dot_16(w + 4, y);
  }
}

// What a set's lanes have of its row, made whole: the lanes of even quarters end with the first set's, those of odd
// ones with the last set's.
template <int N>
ZINC_DEVICE int gather(const int (&of_set)[N]) {
  int own = of_set[0];
  if constexpr (N == 1) {
    own += __shfl_xor_sync(0xFFFFFFFFu, own, kLaneRows);
  } else {
    const bool is_odd = (lane_id() & kLaneRows) != 0;
    own = (is_odd ? of_set[1] : of_set[0]) + __shfl_xor_sync(0xFFFFFFFFu, is_odd ? of_set[0] : of_set[1], kLaneRows);
  }
  return own + __shfl_xor_sync(0xFFFFFFFFu, own, 2 * kLaneRows);
}

// Likewise all eight groups' dots, in their order.
template <int N>
ZINC_DEVICE void gather_groups(const int (&dots)[N][2], int (&all)[kSegmentGroups]) {
  const bool is_odd = (lane_id() & kLaneRows) != 0, is_late = (lane_id() & 2 * kLaneRows) != 0;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int own = is_odd ? dots[N - 1][k] : dots[0][k];
    const int other = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? dots[0][k] : dots[N - 1][k], kLaneRows);
    const int first = is_odd ? other : own, second = is_odd ? own : other;  // of quarters 2 h and 2 h + 1
    const int far_first = __shfl_xor_sync(0xFFFFFFFFu, first, 2 * kLaneRows);
    const int far_second = __shfl_xor_sync(0xFFFFFFFFu, second, 2 * kLaneRows);
    all[k] = is_late ? far_first : first;
    all[2 + k] = is_late ? far_second : second;
    all[4 + k] = is_late ? first : far_first;
    all[6 + k] = is_late ? second : far_second;
  }
}

// The segment's value for the lane's row of each of N sets: in lanes of even quarters the first set's, in lanes of odd
// ones the last set's.
template <class F, int N>
ZINC_DEVICE float dot_strip(u8* slot, const SharedX& x, int n_groups) {
  constexpr int kSlot = slot_bytes(F::kHeaderBytes, F::kGroupBytes);
  int4 quants[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) quants[i] = x.quants[4 * quarter() + i];
  const int2 xsums = F::kHasMin ? reinterpret_cast<const int2*>(x.sums)[quarter()] : make_int2(0, 0);
  StripLane<F> lanes[N];
  int dots[N][2], sums[N], mins[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    lanes[n].load_header(slot + n * kSlot);
    int low[2], high[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      dot_group<F>(F::group(groups_in<F>(slot + n * kSlot), lane_id(), k), quants[2 * k], quants[2 * k + 1], low[k],
                   high[k]);
      dots[n][k] = low[k] + high[k];
    }
    if constexpr (F::kRoundedBlock == kSegmentElems) lanes[n].scale(low, high, xsums, sums[n], mins[n]);
  }
  auto header = lanes[0].header;
  if (N > 1 && (lane_id() & kLaneRows) != 0) header = lanes[N - 1].header;
  if constexpr (F::kRoundedBlock == kGroupElems) {
    int all[kSegmentGroups];
    gather_groups(dots, all);
    float value = 0;
#pragma unroll
    for (int g = 0; g < kSegmentGroups; ++g) {
      if (g < n_groups) value = add_group<F>(header, g, all[g], x.scales[g], F::kHasMin ? x.sums[g] : 0, value);
    }
    return value;
  } else {
    float value = header.d() * static_cast<float>(gather(sums));
    if constexpr (F::kHasMin) value = fmaf(-header.dmin(), static_cast<float>(gather(mins)), value);
    return value * x.scales[0];
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
// A term is one matrix of those an output is made of, but for a gate's two, which are one.
template <class F>
struct Walk {
  static constexpr bool kIsFloat = F::kRoundedBlock == 0, kIsGate = kShape.act != kNoAct;
  static constexpr int kRows = kIsFloat ? kPanelRows : kShape.strip_rows, kStripsOfPanel = kPanelRows / kRows;
  static constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
  static constexpr long long kPanelBytes = (kInputSegments - 1) * static_cast<long long>(kSegmentBytes) +
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
  ZINC_DEVICE const ProductPart& part(int owned_by) const { return p.parts[kShape.n_used > 0 ? 0 : owned_by]; }
};

// A warp's units one after the other, kProductWarps apart.
struct Turn {
  int strip, unit;  // strip: of the block
  ZINC_DEVICE Turn() : strip(warp_id() / kUnits), unit(warp_id() % kUnits) {}
  // Whether it is in the next strip, or further.
  ZINC_DEVICE bool advance() {
    strip += kProductWarps / kUnits;
    unit += kProductWarps % kUnits;
    if (unit < kUnits) return kProductWarps >= kUnits;
    unit -= kUnits;
    ++strip;
    return true;
  }
};

// Where they lie.
template <class F>
struct Place {
  using W = Walk<F>;
  Turn turn;
  const u8* strip_bytes;  // the first segment of the strip's panel
  long long other;        // to the gate's other matrix
  int row, n_left;        // n_left: strips of its matrix from this one on

  ZINC_DEVICE void find(const W& walk) {
    int strip = walk.begin + turn.strip;
    const int which = walk.owner(strip);
    const ProductPart& part = walk.part(which);
    row = strip % W::kStripsOfPanel * W::kRows;
    n_left = part.n_strips - strip;
    long long at = strip / W::kStripsOfPanel * W::kPanelBytes;
    if constexpr (kShape.n_used > 0) at += walk.experts[which] * part.matrix_bytes;
    strip_bytes = part.bytes + at;
    if constexpr (W::kIsGate) other = part.last - part.bytes;
  }
  ZINC_DEVICE int segment() const { return turn.unit % kInputSegments; }
  ZINC_DEVICE const u8* bytes(const W& walk) const {
    const u8* from = strip_bytes;
    if constexpr (kShape.n_mixed > 0) {
      const int term = turn.unit / kInputSegments;
      const ProductPart& part = walk.p.parts[0];
      from += term == kShape.n_mixed ? part.last - part.bytes : walk.experts[term] * part.matrix_bytes;
    }
    return from + segment() * W::kSegmentBytes;
  }
  ZINC_DEVICE void advance(const W& walk) {
    if (!turn.advance() || walk.begin + turn.strip >= walk.end) return;
    if (kProductWarps > kUnits || --n_left == 0) return find(walk);
    row += W::kRows;  // the next strip
    if (row < kPanelRows) return;
    row = 0;
    strip_bytes += W::kPanelBytes;
  }
};

// A strip's unit of floats, and that of the gate's other matrix.
template <class F>
ZINC_DEVICE void multiply_floats(const Walk<F>& walk, const Turn& turn, const float* x, int n_groups, float* to,
                                 int to_other) {
  Place<F> place;
  place.turn = turn;
  place.find(walk);
  const u8* from = place.bytes(walk);
  to[lane_id()] = dot_floats<F>(from, lane_id(), x, n_groups);
  if constexpr (Walk<F>::kIsGate) to[to_other + lane_id()] = dot_floats<F>(from + place.other, lane_id(), x, n_groups);
}

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

  ZINC_DEVICE void load(const Walk<F>& walk, int strip, int row) {
    if (strip >= walk.end) return;
    which = walk.owner(strip);
    o = strip * Walk<F>::kRows + row;
    const ProductPart& at = walk.part(which);
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
    const ProductPart& at = walk.part(which);
    float value = sum_of(partial, stride);
    if (kShape.n_used > 0 && at.expert_scale) value *= at.expert_scale[walk.experts[which]];
    if (at.bias) value += bias;
    if constexpr (kShape.act != kNoAct) {
      float last = sum_of(partial + kInputSegments * stride, stride);  // kUnits are one term's
      if (kShape.n_used > 0 && at.last_scale) last *= at.last_scale[walk.experts[which]];
      if (at.last_bias) last += last_bias;
      value = gated(kShape.act, value, last);
    }
    return value;
  }
  // As moe_combine adds experts up, and then the shared one.
  ZINC_DEVICE float mixed(const Walk<F>& walk, const Used& used, const float* partial, int stride) const {
    const ProductPart& at = walk.part(which);
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
    const ProductPart& at = walk.part(which);
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
  for (int e = static_cast<int>(threadIdx.x); e < kExperts; e += kProductThreads) {
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
  u8* slot = shared + kRoom.ring + warp_id() * kSegmentBytes;
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
  RowInput<0>::prepare<0>(p.source, norm, shared + kRoom.x, sums);
  if (!has_unit) return;
  wait_at(gate, 0);
  const int o = panel * kPanelRows + lane_id();
  const float* x = reinterpret_cast<const float*>(shared + kRoom.x) + s * kSegmentElems;
  if (o < part.n_out) part.out[s * part.n_out + o] = dot_floats<F>(slot, lane_id(), x, groups_of(s));
}

template <class F>
ZINC_DEVICE void multiply_class(const ProductParams& p, const ProductClass& c, u8* shared) {
  using W = Walk<F>;
  constexpr bool kIsFloat = W::kIsFloat, kIsGate = W::kIsGate, kHasExperts = kShape.n_used + kShape.n_mixed > 0;
  constexpr int kRows = W::kRows, kSets = sets_of(kShape), kSlot = slot_bytes(F::kHeaderBytes, F::kGroupBytes);
  constexpr int kDepth = kIsFloat ? 0 : depth_of(kSets, F::kHeaderBytes, F::kGroupBytes);
  constexpr int kBatch = batch_strips(kShape, kRows), kStride = kBatch * kRows, kTermFloats = kUnits * kStride;
  __shared__ Used used;
  __shared__ float sums[kWarps];
  float* norm = reinterpret_cast<float*>(shared + kRoom.norm);
  u8 *x = shared + kRoom.x, *ring = shared + kRoom.ring + warp_id() * kDepth * kSets * kSlot;
  using Input = RowInput<F::kRoundedBlock>;
  const W walk(p, c, used.ids);
  const int n_strips = walk.end - walk.begin;
  Place<F> next;
  const auto load = [&](u8* slot) {
    if (next.turn.strip < n_strips) {
      const u8* from = next.bytes(walk);
      const int n_groups = groups_of(next.segment());
      fill_slot<F>(slot, from, next.row, n_groups);
      if constexpr (kIsGate) {
        fill_slot<F>(slot + kSlot, from + next.other, next.row, n_groups);
      } else if constexpr (kSets == 2) {
        fill_slot<F>(slot + kSlot, from, next.row + kLaneRows, n_groups);
      }
      next.advance(walk);
    }
    end_copies();
  };
  const auto load_first = [&] {
    if (next.turn.strip < n_strips) next.find(walk);
    if constexpr (!kIsFloat) {
#pragma unroll 1
      for (int j = 0; j < kDepth; ++j) load(ring + j * kSets * kSlot);
    }
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
  Input::template prepare<kDepth>(p.source, norm, x, sums);
  Turn turn;
  int half = 0, place = 0;
  for (int first = 0; first < n_strips; first += kBatch, half ^= 1) {
    float* partial = norm + half * kTermFloats * (kIsGate ? 2 : 1);
    Output<F> output;
    output.load(walk, walk.begin + first + static_cast<int>(threadIdx.x) / kRows,
                static_cast<int>(threadIdx.x) % kRows);
    const int end = min(first + kBatch, n_strips);
#pragma unroll 1
    for (; turn.strip < end; turn.advance()) {
      const int s = turn.unit % kInputSegments, at = kShape.n_mixed > 0 ? turn.unit : s;
      float* to = partial + turn.unit * kStride + (turn.strip - first) * kRows;
      if constexpr (kIsFloat) {
        multiply_floats<F>(walk, turn, reinterpret_cast<const float*>(x) + at * kSegmentElems, groups_of(s), to,
                           kTermFloats);
      } else {
        u8* slot = ring + place * kSets * kSlot;
        await_copies<kDepth - 1>();
        __syncwarp();
        const float value = dot_strip<F, kSets>(slot, reinterpret_cast<const SharedX*>(x)[at], groups_of(s));
        __syncwarp();
        load(slot);
        if (kIsGate && lane_id() >= kLaneRows) to += kTermFloats - kLaneRows;
        if (lane_id() < kLaneRows * kSets) to[lane_id()] = value;
        if (++place == kDepth) place = 0;
      }
    }
    __syncthreads();
    output.write(walk, used, partial + threadIdx.x, kStride);
    for (int i = static_cast<int>(threadIdx.x) + kProductThreads; i < kStride; i += kProductThreads) {
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
extern "C" __global__ void __launch_bounds__(kProductThreads, 2) product(__grid_constant__ const ProductParams p) {
  extern __shared__ float4 shared[];
  let_next_start();
  touch_params(p);
  int i = 0;
  while (i + 1 < p.n_classes && static_cast<int>(blockIdx.x) >= p.classes[i + 1].first_block) ++i;
  choose(p, p.classes[i], reinterpret_cast<u8*>(shared), p.classes[i].format, Formats{});
}

}  // namespace zinc::simt
