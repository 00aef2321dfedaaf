// out[o] = sum_k x[k] * weight[o, k]: matrices times one row of activations, as fast as weights arrive. A program of
// this file begins with the formats of its matrices, as Formats, and with kShape: what it is compiled for.
// A unit is one segment of a panel: 32 rows that lie together. Units are copied into a ring of shared memory, the first
// before the block waits for its activations. Pairs of warps, when they have normed and rounded the row, take them in
// turn, 16 rows a warp (half_row.h); who has read one last has another copied in its place. The blocks of a cluster
// share out the units of their panels, and each adds up its part of the rows. Units' values are linear.cu's to the bit,
// and are added in order by one thread per output. A launch has a block for each multiprocessor, and those without work
// wait too (ADR 0015).
#include "backend/simt/floating.h"
#include "backend/simt/half_row.h"
#include "backend/simt/product_units.h"
#include "backend/simt/routing.h"
#include "backend/simt/row_input.h"

namespace zinc::simt {

// ---- floats ----

// A segment of floats, its products one after the other as in floating.h.
template <class F>
ZINC_DEVICE float dot_floats(const u8* segment, int row, const float* x, int n_groups) {
  float sum = 0;
#pragma unroll(F::kPieceElems >= 8 ? 2 : 1)
  for (int g = 0; g < n_groups; ++g) {
    uint4 pieces[kGroupElems / F::kPieceElems];
#pragma unroll
    for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) pieces[j] = float_piece<F>(segment, row, g, j);
#pragma unroll
    for (int e = 0; e < kGroupElems; e += 4) {
      if (F::kPieceElems < 8 && e == kGroupElems / 2) __syncwarp();  // no more than half a group's loads at once
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

// Where the rows' first segment would lie: there is room from the block's own first one on, or for all.
template <int B>
ZINC_DEVICE u8* row_of(u8* shared, const RankUnits& units) {
  constexpr int kBytes = row_segment_bytes(B == 0), kAll = kIsGate ? kInputSegments : kUnits;
  u8* first = shared + kRoom.x;
  return kShape.x_bytes >= kAll * kBytes ? first : first - input_of(units.begin) * kBytes;
}

// ---- the ring ----

template <class F>
struct Ring {
  static constexpr int kSlotBytes = PanelBytes<F>::kSegment, kSlots = slots_of(kShape, kSlotBytes);
  static constexpr bool kIsRefilled = kShape.most_panels * most_rank_units(kShape) > kSlots;  // else it has all units
  u8* bytes;
  Gate* full;
  int* n_done;  // warps that have read what was in a slot

  ZINC_DEVICE explicit Ring(u8* shared)
      : bytes(shared + kRoom.ring),
        full(reinterpret_cast<Gate*>(shared)),
        n_done(reinterpret_cast<int*>(full + kMaxSlots)) {}
  ZINC_DEVICE void fill(int slot, const Panels& panels, const Place& place) const {
    copy_bulk<kReadOnce>(bytes + slot * kSlotBytes, place.bytes(panels), place.n_bytes, full + slot);
  }
  // A gate tells neighbouring rounds apart, no more: a pair that is not the one that was there the round before waits
  // for that one first.
  ZINC_DEVICE void await(int slot, int round) const {
    if (kSlots % kShape.n_pairs != 0 && round > 0) await_come(n_done + slot, 2 * round);
    wait_at(full + slot, round & 1);
  }
  // By one thread, when a warp has read what is in the slot of that unit.
  ZINC_DEVICE void refill(int slot, const Panels& panels, const RankUnits& units, Turn turn) const {
    if (!comes_second(n_done + slot)) return;
    turn.advance(units, kSlots);
    if (turn.panel >= panels.count()) return;
    Place place;
    place.find<F>(panels, turn);
    fill(slot, panels, place);
  }
  // By one warp: the first units, a lane each. What is where is found before that is known of whom.
  static ZINC_DEVICE void find_first(const Panels& panels, const RankUnits& units, Place& place) {
    const int lane = lane_id();
    if (lane < kSlots && lane < panels.count() * units.count()) place.find<F>(panels, Turn(units, lane));
  }
  ZINC_DEVICE void begin(const Panels& panels, const Place& place) const {
    if (place.n_bytes > 0) fill(lane_id(), panels, place);
  }
};

// ---- results ----

ZINC_DEVICE float sum_of(const float* partial, int stride) {
  float sum = 0;
#pragma unroll(kInputSegments <= 16 ? kInputSegments : 8)
  for (int s = 0; s < kInputSegments; ++s) sum += partial[s * stride];
  return sum;
}

// One thread's output, from the values of its units, kRankRows floats apart.
struct Output {
  int o = -1, which = 0;
  float bias = 0, last_bias = 0, added = 0;  // loaded before the sums are there
  float gate = 0;                            // of the shared expert

  // panel: of the cluster's, less than `end`.
  ZINC_DEVICE void find(const Panels& panels, int panel, int end, int row) {
    o = -1;
    if (panel >= end) return;
    panel += panels.begin;
    which = panels.owner(panel);
    o = panel * kPanelRows + row;
    if (o >= panels.part(which).n_out) o = -1;
    settle(o);
    settle(which);
  }
  ZINC_DEVICE void load(const Panels& panels) {
    if (o < 0) return;
    const ProductPart& at = panels.part(which);
    if (!kIsGate && at.added) added = at.added[o];
    gate = 0;
    for (int s = 0; s < kShape.n_gates; ++s) gate += panels.p.shared_gate[s];
    if constexpr (kShape.n_mixed > 0) {
      for (int u = 0; u < kShape.n_mixed; ++u) {
        if (at.bias) fetch_ahead(at.bias + static_cast<long long>(panels.experts[u]) * at.n_out + o);
        if (at.expert_scale) fetch_ahead(at.expert_scale + panels.experts[u]);
      }
    } else {
      const long long place = (kShape.n_used > 0 ? static_cast<long long>(panels.experts[which]) * at.n_out : 0) + o;
      if (at.bias) bias = at.bias[place];
      if (at.last_bias) last_bias = at.last_bias[place];
    }
  }
  ZINC_DEVICE float plain(const Panels& panels, const float* partial) const {
    constexpr int kStride = (kIsGate ? 2 : 1) * kRankRows;
    const ProductPart& at = panels.part(which);
    float value = sum_of(partial, kStride);
    if (kShape.n_used > 0 && at.expert_scale) value *= at.expert_scale[panels.experts[which]];
    if (at.bias) value += bias;
    if constexpr (kIsGate) {
      float last = sum_of(partial + kRankRows, kStride);
      if (kShape.n_used > 0 && at.last_scale) last *= at.last_scale[panels.experts[which]];
      if (at.last_bias) last += last_bias;
      value = gated(kShape.act, value, last);
    }
    return value;
  }
  // As moe_combine adds experts up, and then the shared one.
  ZINC_DEVICE float mixed(const Panels& panels, const Used& used, const float* partial) const {
    const ProductPart& at = panels.part(which);
    float sum = 0;
#pragma unroll 4
    for (int u = 0; u < kShape.n_mixed; ++u) {
      float value = sum_of(partial + u * kInputSegments * kRankRows, kRankRows);
      if (at.expert_scale) value *= at.expert_scale[used.ids[u]];
      if (at.bias) value += at.bias[static_cast<long long>(used.ids[u]) * at.n_out + o];
      sum = fmaf(value, used.weights[u], sum);
    }
    if constexpr (kShape.has_last != 0) {
      const float shared = sum_of(partial + kShape.n_mixed * kInputSegments * kRankRows, kRankRows);
      sum += gated(kSigmoid, gate, shared);
    }
    return sum;
  }
  ZINC_DEVICE void write(const Panels& panels, const Used& used, const float* partial) const {
    if (o < 0) return;
    const ProductPart& at = panels.part(which);
    float value;
    if constexpr (kShape.n_mixed > 0) {
      value = mixed(panels, used, partial);
    } else {
      value = plain(panels, partial);
    }
    at.out[(kShape.n_used > 0 ? which * at.n_out : 0) + o] = !kIsGate && at.added ? added + value : value;
  }
};

// ---- experts ----

// Every block for itself. Weights are there when the warps that multiply meet next.
ZINC_DEVICE void find_experts(const RouteSource& p, Used& used) {
  constexpr int kExperts = kShape.n_experts > 0 ? kShape.n_experts : 1;
  constexpr int kAll = kShape.n_used + kShape.n_mixed, kChosen = kAll > 0 ? kAll : 1;
  __shared__ float logits[kExperts];
  for (int e = static_cast<int>(threadIdx.x); e < kExperts; e += static_cast<int>(blockDim.x)) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kShape.n_route_segments; ++s) sum += __ldcg(p.partial + s * kExperts + e);
    logits[e] = p.bias ? sum + p.bias[e] : sum;
  }
  __syncthreads();
  const bool chooses = warp_id() == 0;  // another begins to fill the ring
  int id = 0;
  float logit = 0;
  if (chooses) {
    choose_known<kExperts, kChosen>(logits, id, logit);
    if (lane_id() < kChosen) used.ids[lane_id()] = id;
  }
  __syncthreads();
  if (!chooses) return;
  const float weight = weigh_known<kExperts, kChosen>(logits, logit, kShape.route_mode, p.scale);
  if (lane_id() >= kChosen) return;
  used.weights[lane_id()] = weight;
}

// For later launches, by the threads that found them. Behind the wait: the launch before may still read what was there.
ZINC_DEVICE void leave_experts(const RouteSource& p, const Used& used) {
  const int i = static_cast<int>(threadIdx.x);
  if (blockIdx.x > 0 || i >= kShape.n_used) return;
  p.ids[i] = used.ids[i];
  p.weights[i] = used.weights[i];
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

ZINC_DEVICE void wait_for_inputs() {
  wait_for_previous();
  if constexpr (kShape.starts_next_late != 0) let_next_start();
}

// A warp per segment of floats, whose sums are left as they are. The first are on their way before the wait.
template <class F>
ZINC_DEVICE void spread_class(const ProductParams& p, const ProductClass& c, u8* shared) {
  const int block = static_cast<int>(blockIdx.x) - c.first_block;
  const int begin = block * c.each + min(block, c.n_more), end = begin + c.each + (block < c.n_more ? 1 : 0);
  u8* slot = shared + kRoom.ring + warp_id() * PanelBytes<F>::kSegment;
  Gate* gate = reinterpret_cast<Gate*>(shared) + warp_id();
  int unit = warp_id() < kSpreadUnits ? begin + warp_id() : end;
  const auto find = [&](int& panel, int& s) -> const ProductPart& {
    int i = c.first_part, in_part = unit;
#pragma unroll 1
    while (in_part >= p.parts[i].n_panels) in_part -= p.parts[i++].n_panels;
    panel = in_part / kInputSegments;
    s = in_part - panel * kInputSegments;
    return p.parts[i];
  };
  const auto load = [&] {
    if (unit >= end || lane_id() != 0) return;
    int panel, s;
    const ProductPart& part = find(panel, s);
    copy_bulk(slot, part.bytes + panel * PanelBytes<F>::kAll + static_cast<long long>(s) * PanelBytes<F>::kSegment,
              kPanelRows * groups_of(s) * F::kGroupBytes, gate);
  };
  if (lane_id() == 0) {
    open_gate(gate);
    end_opening();
  }
  load();
  __syncwarp();
  float* norm = reinterpret_cast<float*>(shared + kRoom.norm);
  static_assert(kShape.spreads_other == 0 || kShape.input != kSummedRow, "its blocks would leave the sum in pieces");
  const SumWeights weights(p.source);
  if constexpr (kShape.spreads_other == 0) RowInput<0>::fetch_norm(p.source, norm);
  wait_for_inputs();
  if constexpr (kShape.spreads_other != 0) {
    RowInput<0>::prepare_as_is(p.spread_x, shared + kRoom.x);
  } else {
    float* room = reinterpret_cast<float*>(shared + kRoom.squares);
    RowInput<0, 1>::prepare(p.source, norm, weights, shared + kRoom.x, room, 0, kInputSegments, [] {});
  }
#pragma unroll 1
  for (int parity = 0; unit < end; parity ^= 1) {
    wait_at(gate, parity);
    int panel, s;
    const ProductPart& part = find(panel, s);
    const int o = panel * kPanelRows + lane_id();
    const float* x = reinterpret_cast<const float*>(shared + kRoom.x) + s * kSegmentElems;
    const float value = dot_floats<F>(slot, lane_id(), x, groups_of(s));
    if (o < part.n_out) part.out[s * part.n_out + o] = value;
    __syncwarp();
    unit += kSpreadUnits;
    load();
  }
}

// Where a row's value of a unit goes: to the block that adds the row up.
ZINC_DEVICE void keep(float* partial, Gate* done, int unit, int row, float value) {
  float* to = partial + unit * kRankRows + row % kRankRows;
  if constexpr (kRanks > 1) {
    store_at_rank(to, done, row / kRankRows, value);
  } else {
    *to = value;
  }
}

// A warp's units, and where in the ring they are.
struct Progress {
  Turn turn;
  int slot, round = 0;  // round: how often it has come to the ring's end
};

// The units of panels `first` to `end` - 1, two warps to a unit.
template <class F>
ZINC_DEVICE void multiply_units(u8* shared, const Panels& panels, const RankUnits& units, int first, int end,
                                Progress& at, float* partial, Gate* done) {
  const Ring<F> ring(shared);
  const SharedX* x = reinterpret_cast<const SharedX*>(row_of<F::kRoundedBlock>(shared, units));
  const int row = warp_id() % 2 * kHalfRows + lane_id() % kHalfRows;
#pragma unroll 1
  for (; at.turn.panel < end; at.turn.advance(units, kShape.n_pairs)) {
    const int unit = at.turn.unit;
    ring.await(at.slot, at.round);
    const HalfRow<F> half(ring.bytes + at.slot * Ring<F>::kSlotBytes, row);
    if constexpr (Ring<F>::kIsRefilled) {
      __syncwarp();
      if (lane_id() == 0) ring.refill(at.slot, panels, units, at.turn);
    }
    const float value = half.times(x[input_of(unit)], groups_of(segment_of(unit)));
    if (half_of_lane() != 0) keep(partial + (at.turn.panel - first) * kUnits * kRankRows, done, unit, row, value);
    at.slot += kShape.n_pairs;
    if (at.slot >= Ring<F>::kSlots) {
      at.slot -= Ring<F>::kSlots;
      ++at.round;
    }
  }
}

// Likewise of floats, which do not pass through the ring: a warp to a unit.
template <class F>
ZINC_DEVICE void multiply_floats(u8* shared, const Panels& panels, const RankUnits& units, int first, int end,
                                 Progress& at, float* partial, Gate* done) {
  const float* x = reinterpret_cast<const float*>(row_of<0>(shared, units));
#pragma unroll 1
  for (; at.turn.panel < end; at.turn.advance(units, kProductWarps)) {
    const int unit = at.turn.unit;
    Place place;
    place.find<F>(panels, at.turn);
    const float value =
        dot_floats<F>(place.bytes(panels), lane_id(), x + input_of(unit) * kSegmentElems, groups_of(segment_of(unit)));
    keep(partial + (at.turn.panel - first) * kUnits * kRankRows, done, unit, lane_id(), value);
  }
}

// Has `call` run for the format of that number among the program's.
template <class Call, class First, class... Rest>
ZINC_DEVICE void with_format(int format, List<First, Rest...>, const Call& call) {
  if constexpr (sizeof...(Rest) > 0) {
    if (format != 0) return with_format(format - 1, List<Rest...>{}, call);
  }
  call.template run<First>();
}

struct Spread {
  const ProductParams& p;
  const ProductClass& c;
  u8* shared;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kRoundedBlock == 0) spread_class<F>(p, c, shared);
  }
};
struct FindFirst {
  const Panels& panels;
  const RankUnits& units;
  Place& place;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kRoundedBlock > 0) Ring<F>::find_first(panels, units, place);
  }
};
struct Begin {
  u8* shared;
  const Panels& panels;
  const Place& place;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kRoundedBlock > 0) Ring<F>(shared).begin(panels, place);
  }
};
struct Multiply {
  u8* shared;
  const Panels& panels;
  const RankUnits& units;
  int first, end;
  Progress& at;
  float* partial;
  Gate* done;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kRoundedBlock == 0) {
      multiply_floats<F>(shared, panels, units, first, end, at, partial, done);
    } else {
      multiply_units<F>(shared, panels, units, first, end, at, partial, done);
    }
  }
};

// Numbers to a scale of the activations that a format takes, and which of these occur.
template <int B, class... F>
ZINC_BOTH bool takes(List<F...>) {
  return ((F::kRoundedBlock == B) || ...);
}
constexpr bool kTakesFloats = takes<0>(Formats{}), kTakesGroups = takes<kGroupElems>(Formats{}),
               kTakesSegments = takes<kSegmentElems>(Formats{});
struct FindBlock {
  int& block;
  template <class F>
  ZINC_DEVICE void run() const {
    block = F::kRoundedBlock;
  }
};
ZINC_DEVICE int block_of(int format) {
  if constexpr (int{kTakesFloats} + int{kTakesGroups} + int{kTakesSegments} == 1) {
    return kTakesFloats ? 0 : kTakesGroups ? kGroupElems : kSegmentElems;
  } else {
    int block = 0;
    with_format(format, Formats{}, FindBlock{block});
    return block;
  }
}
template <int B, class Meanwhile>
ZINC_DEVICE void prepare_if(int block, const ProductParams& p, const RankUnits& units, const SumWeights& weights,
                            u8* shared, const Meanwhile& meanwhile) {
  if (block != B) return;
  const float* norm = reinterpret_cast<const float*>(shared + kRoom.norm);
  float* room = reinterpret_cast<float*>(shared + kRoom.squares);
  RowInput<B>::prepare(p.source, norm, weights, row_of<B>(shared, units), room, input_of(units.begin),
                       input_of(units.end - 1) + 1, meanwhile);
}
// meanwhile: RowInput::prepare.
template <class Meanwhile>
ZINC_DEVICE void prepare_row(int block, const ProductParams& p, const RankUnits& units, const SumWeights& weights,
                             u8* shared, const Meanwhile& meanwhile) {
  if constexpr (kTakesFloats) prepare_if<0>(block, p, units, weights, shared, meanwhile);
  if constexpr (kTakesGroups) prepare_if<kGroupElems>(block, p, units, weights, shared, meanwhile);
  if constexpr (kTakesSegments) prepare_if<kSegmentElems>(block, p, units, weights, shared, meanwhile);
}

ZINC_DEVICE void multiply_class(const ProductParams& p, const ProductClass& c, u8* shared) {
  constexpr int kBatch = batch_panels(kShape), kBatchRows = kBatch * kRankRows, kHalfFloats = kBatchRows * kUnits;
  static_assert(kBatchRows <= kProductThreads);
  __shared__ Used used;
  const Panels panels(p, c, used.ids);
  const RankUnits units;
  Gate *gates = reinterpret_cast<Gate*>(shared), *done = gates + 2 * kMaxSlots;  // done: all blocks' units
  if (warp_id() == kProductWarps - 1) {
    static_assert(kMaxSlots == 32);
    open_gate(gates + lane_id());
    gates[kMaxSlots + lane_id()] = 0;
    if (kRanks > 1 && lane_id() == 0) {
      open_gate(done);
      expect_at(done, panels.count() * kUnits * kRankRows * static_cast<int>(sizeof(float)));
    }
    end_opening();
  }
  __syncthreads();
  if constexpr (kRanks > 1) cluster_arrives();
  constexpr bool kIsRowEarly = kShape.is_early != 0 && kShape.n_used > 0,
                 kAreLogitsEarly = kShape.finds_early != 0 || (kShape.is_early != 0 && kShape.n_mixed > 0);
  float* norm = reinterpret_cast<float*>(shared + kRoom.norm);
  const int block = block_of(c.format);
  if constexpr (kIsRowEarly) {
    RowInput<0>::fetch_norm(p.source, norm);
    prepare_row(block, p, units, SumWeights(p.source), shared, [] {});
  }
  if constexpr (kRanks > 1) wait_for_cluster();
  Place place{};
  if (warp_id() == kProductWarps - 1) {
    with_format(c.format, Formats{}, FindFirst{panels, units, place});
    settle(place.from);
    settle(place.expert);
    settle(place.n_bytes);
  }
  if constexpr (kHasExperts) {
    if constexpr (!kAreLogitsEarly) wait_for_inputs();
    if constexpr (kShape.n_experts > 0) {
      find_experts(p.route, used);
    } else {
      load_experts(p, used);
    }
  }
  if (warp_id() == kProductWarps - 1) {
    with_format(c.format, Formats{}, Begin{shared, panels, place});
    __syncwarp();
  }
  float* all_sums = norm + (kRanks > 1 && is_normed(kShape.input) ? kShape.n_in : 0);
  if constexpr (!kIsRowEarly) RowInput<0>::fetch_norm(p.source, norm);
  const SumWeights weights(p.source);
  constexpr u32 kRowsOfRank = kRankRows;  // without a sign, so that division is a shift
  const int panel = static_cast<int>(threadIdx.x / kRowsOfRank), rank_row = static_cast<int>(threadIdx.x % kRowsOfRank);
  const int row = (kRanks > 1 ? cluster_rank() : 0) * kRankRows + rank_row;
  Output output;
  output.find(panels, panel, min(kBatch, panels.count()), row);
  if constexpr (!kHasExperts || kAreLogitsEarly) wait_for_inputs();
  if constexpr (kShape.n_used > 0 && kShape.n_experts > 0) leave_experts(p.route, used);
  const auto load = [&] { output.load(panels); };
  if constexpr (kIsRowEarly) {
    load();
  } else {
    prepare_row(block, p, units, weights, shared, load);
  }
  const int pair = warp_id() / 2;
  Progress at{Turn(units, block == 0 ? warp_id() : pair), pair};
  int half = 0;
  for (int first = 0; first < panels.count(); first += kBatch, half ^= 1) {
    float* partial = all_sums + half * kHalfFloats;
    const int end = min(first + kBatch, panels.count());
    with_format(c.format, Formats{}, Multiply{shared, panels, units, first, end, at, partial, done});
    if constexpr (kRanks > 1) {
      wait_for_ranks(done);
    } else {
      meet<kProductThreads>(1);
    }
    output.write(panels, used, partial + panel * kUnits * kRankRows + rank_row);
    if constexpr (kBatch < kShape.most_panels) {
      output.find(panels, end + panel, min(end + kBatch, panels.count()), row);
      output.load(panels);
    }
  }
}

// Grid: blocks of all classes.
extern "C" __global__ void __launch_bounds__(product_threads(kShape), 2)
    product(__grid_constant__ const ProductParams p) {
  extern __shared__ float4 shared[];
  if constexpr (kShape.starts_next_late == 0) let_next_start();
  touch_params(p);
  int i = 0;
#pragma unroll 1
  while (i + 1 < p.n_classes && static_cast<int>(blockIdx.x) >= p.classes[i + 1].first_block) ++i;
  const ProductClass& c = p.classes[kShape.n_parts == 1 ? 0 : i];
  u8* bytes = reinterpret_cast<u8*>(shared);
  if constexpr (kTakesFloats) {
    if (c.is_spread) return with_format(c.format, Formats{}, Spread{p, c, bytes});
  }
  multiply_class(p, c, bytes);
}

}  // namespace zinc::simt
