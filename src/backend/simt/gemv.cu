// out[o] = sum_k x[k] * weight[o, k]: gemv of decode (batch 1), at memory bandwidth. A program of this file begins with
// the formats of its matrices, as Formats, and with its compile-time shape, kShape.
// A work tile is one K segment of a panel (32 interleaved rows). Tiles pass through a pipeline of stages in shared
// memory, filled by bulk copies; the first copies start before the block waits for its activations. When the row is
// normed and quantized, warp pairs process the tiles round-robin, 16 rows per warp (gemv_dot.h); the last reader of a
// stage refills it. The blocks of a cluster split the tiles of their panels (split-K), and each reduces its share of
// the rows. Tiles are bit-identical to linear.cu's and are added in order by one thread per output. A launch has a
// block for each multiprocessor; blocks without work also wait on the PDL dependency, to keep block placement (ADR 0015).
#include "backend/simt/float_weights.h"
#include "backend/simt/gemv_dot.h"
#include "backend/simt/gemv_prologue.h"
#include "backend/simt/gemv_tiles.h"
#include "backend/simt/routing.h"

namespace zinc::simt {

// ---- float weights ----

// A segment of float weights, accumulated in order as in float_weights.h.
template <class F>
ZINC_DEVICE float dot_float_segment(const u8* segment, int row, const float* x, int n_groups) {
  float sum = 0;
#pragma unroll(F::kPieceElems >= 8 ? 2 : 1)
  for (int g = 0; g < n_groups; ++g) {
    uint4 pieces[kGroupElems / F::kPieceElems];
#pragma unroll
    for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) pieces[j] = float_piece<F>(segment, row, g, j);
#pragma unroll
    for (int e = 0; e < kGroupElems; e += 4) {
      if (F::kPieceElems < 8 && e == kGroupElems / 2) __syncwarp();  // at most half a group of loads in flight
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

// Address of input segment 0. Shared memory holds all segments, or the block's; the address may then lie before it.
template <int B>
ZINC_DEVICE u8* input_row(u8* shared, const BlockTiles& tiles) {
  constexpr int kBytes = input_segment_bytes(B == 0), kAll = kIsGlu ? kInputSegments : kPanelTiles;
  u8* first = shared + kSmem.x;
  return kShape.x_bytes >= kAll * kBytes ? first : first - input_segment(tiles.begin) * kBytes;
}

// ---- weight pipeline ----

template <class F>
struct WeightPipeline {
  static constexpr int kStageBytes = PanelBytes<F>::kSegment, kStages = pipeline_stages(kShape, kStageBytes);
  static constexpr bool kIsReused =
      kShape.max_panels * max_block_tiles(kShape) > kStages;  // else every tile has its own stage
  u8* bytes;
  Mbarrier* full;
  int* n_readers_done;  // per stage: warps that have read it

  ZINC_DEVICE explicit WeightPipeline(u8* shared)
      : bytes(shared + kSmem.pipeline),
        full(reinterpret_cast<Mbarrier*>(shared)),
        n_readers_done(reinterpret_cast<int*>(full + kMaxStages)) {}
  ZINC_DEVICE void load(int stage, const Panels& panels, const TileSource& source) const {
    bulk_copy_expect_tx<kEvictFirst>(bytes + stage * kStageBytes, source.bytes(panels), source.n_bytes, full + stage);
  }
  // The parity of an mbarrier distinguishes only neighboring rounds: a warp pair other than the stage's previous
  // reader first waits for that reader.
  ZINC_DEVICE void wait(int stage, int round) const {
    if (kStages % kShape.n_warp_pairs != 0 && round > 0) wait_arrivals(n_readers_done + stage, 2 * round);
    mbarrier_wait(full + stage, round & 1);
  }
  // Called by one thread of a warp that has read the stage's tile.
  ZINC_DEVICE void refill(int stage, const Panels& panels, const BlockTiles& tiles, TileCursor cursor) const {
    if (!arrive_is_last(n_readers_done + stage)) return;
    cursor.advance(tiles, kStages);
    if (cursor.panel >= panels.count()) return;
    TileSource source;
    source.find<F>(panels, cursor);
    load(stage, panels, source);
  }
  // By one warp, a lane per stage: locates the first tiles, before the experts are known.
  static ZINC_DEVICE void locate_first(const Panels& panels, const BlockTiles& tiles, TileSource& source) {
    const int lane = lane_id();
    if (lane < kStages && lane < panels.count() * tiles.count()) source.find<F>(panels, TileCursor(tiles, lane));
  }
  ZINC_DEVICE void begin(const Panels& panels, const TileSource& source) const {
    if (source.n_bytes > 0) load(lane_id(), panels, source);
  }
};

// ---- epilogue ----

ZINC_DEVICE float sum_segments(const float* partial, int stride) {
  float sum = 0;
#pragma unroll(kInputSegments <= 16 ? kInputSegments : 8)
  for (int s = 0; s < kInputSegments; ++s) sum += partial[s * stride];
  return sum;
}

// One thread's output, from the partial sums of its tiles, kBlockRows floats apart.
struct Output {
  int o = -1, part_index = 0;                 // part_index: Panels::find_part()
  float bias = 0, up_bias = 0, residual = 0;  // loaded before the sums are complete
  float gate = 0;                             // of the shared expert

  // panel: index among the cluster's panels; no output unless below `end`.
  ZINC_DEVICE void find(const Panels& panels, int panel, int end, int row) {
    o = -1;
    if (panel >= end) return;
    panel += panels.begin;
    part_index = panels.find_part(panel);
    o = panel * kPanelRows + row;
    if (o >= panels.part(part_index).n_out) o = -1;
    keep_in_register(o);
    keep_in_register(part_index);
  }
  ZINC_DEVICE void load(const Panels& panels) {
    if (o < 0) return;
    const GemvPart& part = panels.part(part_index);
    if (!kIsGlu && part.residual) residual = part.residual[o];
    gate = 0;
    for (int s = 0; s < kShape.n_shared_gate_splits; ++s) gate += panels.p.shared_gate[s];
    if constexpr (kShape.n_combined > 0) {
      for (int u = 0; u < kShape.n_combined; ++u) {
        if (part.bias) prefetch_l2(part.bias + static_cast<long long>(panels.experts[u]) * part.n_out + o);
        if (part.expert_scale) prefetch_l2(part.expert_scale + panels.experts[u]);
      }
    } else {
      const long long index =
          (kShape.n_experts_used > 0 ? static_cast<long long>(panels.experts[part_index]) * part.n_out : 0) + o;
      if (part.bias) bias = part.bias[index];
      if (part.up_bias) up_bias = part.up_bias[index];
    }
  }
  ZINC_DEVICE float plain(const Panels& panels, const float* partial) const {
    constexpr int kStride = (kIsGlu ? 2 : 1) * kBlockRows;
    const GemvPart& part = panels.part(part_index);
    float value = sum_segments(partial, kStride);
    if (kShape.n_experts_used > 0 && part.expert_scale) value *= part.expert_scale[panels.experts[part_index]];
    if (part.bias) value += bias;
    if constexpr (kIsGlu) {
      float up = sum_segments(partial + kBlockRows, kStride);
      if (kShape.n_experts_used > 0 && part.up_scale) up *= part.up_scale[panels.experts[part_index]];
      if (part.up_bias) up += up_bias;
      value = gated(kShape.act, value, up);
    }
    return value;
  }
  // The weighted sum of experts in the order of moe_combine, then the shared expert.
  ZINC_DEVICE float combined(const Panels& panels, const RoutedExperts& routed, const float* partial) const {
    const GemvPart& part = panels.part(part_index);
    float sum = 0;
#pragma unroll 4
    for (int u = 0; u < kShape.n_combined; ++u) {
      float value = sum_segments(partial + u * kInputSegments * kBlockRows, kBlockRows);
      if (part.expert_scale) value *= part.expert_scale[routed.ids[u]];
      if (part.bias) value += part.bias[static_cast<long long>(routed.ids[u]) * part.n_out + o];
      sum = fmaf(value, routed.weights[u], sum);
    }
    if constexpr (kShape.has_second_matrix != 0) {
      const float shared = sum_segments(partial + kShape.n_combined * kInputSegments * kBlockRows, kBlockRows);
      sum += gated(kSigmoid, gate, shared);
    }
    return sum;
  }
  ZINC_DEVICE void write(const Panels& panels, const RoutedExperts& routed, const float* partial) const {
    if (o < 0) return;
    const GemvPart& part = panels.part(part_index);
    float value;
    if constexpr (kShape.n_combined > 0) {
      value = combined(panels, routed, partial);
    } else {
      value = plain(panels, partial);
    }
    part.out[(kShape.n_experts_used > 0 ? part_index * part.n_out : 0) + o] =
        !kIsGlu && part.residual ? residual + value : value;
  }
};

// ---- experts ----

// Every block computes the routing redundantly. The weights are visible after the next barrier of the gemv warps.
ZINC_DEVICE void route_experts(const GemvRouting& p, RoutedExperts& routed) {
  constexpr int kExperts = kShape.n_experts > 0 ? kShape.n_experts : 1;
  constexpr int kAll = kShape.n_experts_used + kShape.n_combined, kSelected = kAll > 0 ? kAll : 1;
  __shared__ float logits[kExperts];
  for (int e = static_cast<int>(threadIdx.x); e < kExperts; e += static_cast<int>(blockDim.x)) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kShape.n_router_splits; ++s) sum += __ldcg(p.partial + s * kExperts + e);
    logits[e] = p.bias ? sum + p.bias[e] : sum;
  }
  __syncthreads();
  const bool is_router_warp = warp_id() == 0;  // another warp starts the pipeline
  int id = 0;
  float logit = 0;
  if (is_router_warp) {
    top_k_experts<kExperts, kSelected>(logits, id, logit);
    if (lane_id() < kSelected) routed.ids[lane_id()] = id;
  }
  __syncthreads();
  if (!is_router_warp) return;
  const float weight = expert_weight<kExperts, kSelected>(logits, logit, kShape.router_normalization, p.routed_scaling_factor);
  if (lane_id() >= kSelected) return;
  routed.weights[lane_id()] = weight;
}

// Stores the routing for later launches, by the threads that wrote `routed`. REQUIRES: after the PDL wait, because the previous
// launch may still read the old ids.
ZINC_DEVICE void store_experts(const GemvRouting& p, const RoutedExperts& routed) {
  const int i = static_cast<int>(threadIdx.x);
  if (blockIdx.x > 0 || i >= kShape.n_experts_used) return;
  p.ids[i] = routed.ids[i];
  p.weights[i] = routed.weights[i];
}

ZINC_DEVICE void load_experts(const GemvParams& p, RoutedExperts& routed) {
  constexpr int kAll = kShape.n_combined > 0 ? kShape.n_combined : kShape.n_experts_used;
  const int i = static_cast<int>(threadIdx.x);
  if (i < kAll) {
    routed.ids[i] = p.expert_ids[i];
    routed.weights[i] = p.expert_weights ? p.expert_weights[i] : 0.0f;
  }
  __syncthreads();
}

// ---- blocks ----

ZINC_DEVICE void wait_inputs() {
  wait_dependency();
  if constexpr (kShape.launches_dependents_late != 0) launch_dependents();
}

// One warp per segment of float weights; partial sums are stored unreduced. The first copies start before the wait.
template <class F>
ZINC_DEVICE void run_split_k(const GemvParams& p, const GemvProblem& problem, u8* shared) {
  const int block = static_cast<int>(blockIdx.x) - problem.first_block;
  const int begin = block * problem.panels_per_cluster + min(block, problem.n_extra),
            end = begin + problem.panels_per_cluster + (block < problem.n_extra ? 1 : 0);
  u8* stage = shared + kSmem.pipeline + warp_id() * PanelBytes<F>::kSegment;
  Mbarrier* full = reinterpret_cast<Mbarrier*>(shared) + warp_id();
  int tile = warp_id() < kSplitKWarps ? begin + warp_id() : end;
  const auto find = [&](int& panel, int& s) -> const GemvPart& {
    int i = problem.first_part, in_part = tile;
#pragma unroll 1
    while (in_part >= p.parts[i].n_panels) in_part -= p.parts[i++].n_panels;
    panel = in_part / kInputSegments;
    s = in_part - panel * kInputSegments;
    return p.parts[i];
  };
  const auto load = [&] {
    if (tile >= end || lane_id() != 0) return;
    int panel, s;
    const GemvPart& part = find(panel, s);
    bulk_copy_expect_tx(stage,
                        part.bytes + panel * PanelBytes<F>::kAll + static_cast<long long>(s) * PanelBytes<F>::kSegment,
                        kPanelRows * groups_of(s) * F::kGroupBytes, full);
  };
  if (lane_id() == 0) {
    mbarrier_init(full);
    fence_mbarrier_init();
  }
  load();
  __syncwarp();
  float* norm = reinterpret_cast<float*>(shared + kSmem.norm_weight);
  static_assert(kShape.has_split_k_input == 0 || kShape.input != kNormResidualInput,
                "split-K blocks would store the residual in pieces");
  const ResidualWeights weights(p.input);
  if constexpr (kShape.has_split_k_input == 0) GemvPrologue<0>::load_norm_weight(p.input, norm);
  wait_inputs();
  if constexpr (kShape.has_split_k_input != 0) {
    GemvPrologue<0>::prepare_as_is(p.split_k_x, shared + kSmem.x);
  } else {
    float* sums_of_squares = reinterpret_cast<float*>(shared + kSmem.sums_of_squares);
    GemvPrologue<0, 1>::prepare(p.input, norm, weights, shared + kSmem.x, sums_of_squares, 0, kInputSegments, [] {});
  }
#pragma unroll 1
  for (int parity = 0; tile < end; parity ^= 1) {
    mbarrier_wait(full, parity);
    int panel, s;
    const GemvPart& part = find(panel, s);
    const int o = panel * kPanelRows + lane_id();
    const float* x = reinterpret_cast<const float*>(shared + kSmem.x) + s * kSegmentElems;
    const float value = dot_float_segment<F>(stage, lane_id(), x, groups_of(s));
    if (o < part.n_out) part.out[s * part.n_out + o] = value;
    __syncwarp();
    tile += kSplitKWarps;
    load();
  }
}

// Stores a row's value of a tile in the block that reduces the row.
ZINC_DEVICE void store_partial(float* partial, Mbarrier* done, int tile, int row, float value) {
  float* to = partial + tile * kBlockRows + row % kBlockRows;
  if constexpr (kClusterSize > 1) {
    store_async_remote(to, done, row / kBlockRows, value);
  } else {
    *to = value;
  }
}

// A warp's current tile and its pipeline stage.
struct PipelineState {
  TileCursor cursor;
  int stage, round = 0;  // round: how often the stages wrapped around
};

// The tiles of panels `first` to `end` - 1, two warps per tile.
template <class F>
ZINC_DEVICE void run_tiles(u8* shared, const Panels& panels, const BlockTiles& tiles, int first, int end,
                           PipelineState& state, float* partial, Mbarrier* done) {
  const WeightPipeline<F> pipeline(shared);
  const Q8Segment* x = reinterpret_cast<const Q8Segment*>(input_row<F::kQ8Block>(shared, tiles));
  const int row = warp_id() % 2 * kHalfRows + lane_id() % kHalfRows;
#pragma unroll 1
  for (; state.cursor.panel < end; state.cursor.advance(tiles, kShape.n_warp_pairs)) {
    const int tile = state.cursor.tile;
    pipeline.wait(state.stage, state.round);
    const HalfSegment<F> half(pipeline.bytes + state.stage * WeightPipeline<F>::kStageBytes, row);
    if constexpr (WeightPipeline<F>::kIsReused) {
      __syncwarp();
      if (lane_id() == 0) pipeline.refill(state.stage, panels, tiles, state.cursor);
    }
    const float value = half.dot(x[input_segment(tile)], groups_of(k_segment(tile)));
    if (lane_half() != 0)
      store_partial(partial + (state.cursor.panel - first) * kPanelTiles * kBlockRows, done, tile, row, value);
    state.stage += kShape.n_warp_pairs;
    if (state.stage >= WeightPipeline<F>::kStages) {
      state.stage -= WeightPipeline<F>::kStages;
      ++state.round;
    }
  }
}

// The same for float weights, which bypass the pipeline: one warp per tile.
template <class F>
ZINC_DEVICE void run_float_tiles(u8* shared, const Panels& panels, const BlockTiles& tiles, int first, int end,
                                 PipelineState& state, float* partial, Mbarrier* done) {
  const float* x = reinterpret_cast<const float*>(input_row<0>(shared, tiles));
#pragma unroll 1
  for (; state.cursor.panel < end; state.cursor.advance(tiles, kGemvWarps)) {
    const int tile = state.cursor.tile;
    TileSource source;
    source.find<F>(panels, state.cursor);
    const float value = dot_float_segment<F>(source.bytes(panels), lane_id(), x + input_segment(tile) * kSegmentElems,
                                             groups_of(k_segment(tile)));
    store_partial(partial + (state.cursor.panel - first) * kPanelTiles * kBlockRows, done, tile, lane_id(), value);
  }
}

// Runs `call` for the format with this index in Formats.
template <class Call, class First, class... Rest>
ZINC_DEVICE void with_format(int format, List<First, Rest...>, const Call& call) {
  if constexpr (sizeof...(Rest) > 0) {
    if (format != 0) return with_format(format - 1, List<Rest...>{}, call);
  }
  call.template run<First>();
}

struct RunSplitK {
  const GemvParams& p;
  const GemvProblem& problem;
  u8* shared;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block == 0) run_split_k<F>(p, problem, shared);
  }
};
struct LocateFirst {
  const Panels& panels;
  const BlockTiles& tiles;
  TileSource& source;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block > 0) WeightPipeline<F>::locate_first(panels, tiles, source);
  }
};
struct StartPipeline {
  u8* shared;
  const Panels& panels;
  const TileSource& source;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block > 0) WeightPipeline<F>(shared).begin(panels, source);
  }
};
struct RunTiles {
  u8* shared;
  const Panels& panels;
  const BlockTiles& tiles;
  int first, end;
  PipelineState& state;
  float* partial;
  Mbarrier* done;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block == 0) {
      run_float_tiles<F>(shared, panels, tiles, first, end, state, partial, done);
    } else {
      run_tiles<F>(shared, panels, tiles, first, end, state, partial, done);
    }
  }
};

// The q8 blocks that occur in Formats: activations per scale, 0: floats.
template <int B, class... F>
ZINC_HOST_DEVICE bool has_q8_block(List<F...>) {
  return ((F::kQ8Block == B) || ...);
}
constexpr bool kHasFloatActivations = has_q8_block<0>(Formats{}), kHasQ8Block32 = has_q8_block<kGroupElems>(Formats{}),
               kHasQ8Block256 = has_q8_block<kSegmentElems>(Formats{});
struct FindQ8Block {
  int& q8_block;
  template <class F>
  ZINC_DEVICE void run() const {
    q8_block = F::kQ8Block;
  }
};
ZINC_DEVICE int q8_block_of(int format) {
  if constexpr (int{kHasFloatActivations} + int{kHasQ8Block32} + int{kHasQ8Block256} == 1) {
    return kHasFloatActivations ? 0 : kHasQ8Block32 ? kGroupElems : kSegmentElems;
  } else {
    int q8_block = 0;
    with_format(format, Formats{}, FindQ8Block{q8_block});
    return q8_block;
  }
}
template <int B, class OverlappedWork>
ZINC_DEVICE void run_prologue_if(int q8_block, const GemvParams& p, const BlockTiles& tiles, const ResidualWeights& weights,
                                 u8* shared, const OverlappedWork& overlapped_work) {
  if (q8_block != B) return;
  const float* norm_weight = reinterpret_cast<const float*>(shared + kSmem.norm_weight);
  float* sums_of_squares = reinterpret_cast<float*>(shared + kSmem.sums_of_squares);
  GemvPrologue<B>::prepare(p.input, norm_weight, weights, input_row<B>(shared, tiles), sums_of_squares,
                           input_segment(tiles.begin), input_segment(tiles.end - 1) + 1, overlapped_work);
}
// overlapped_work() runs while the loads of this thread are in flight.
template <class OverlappedWork>
ZINC_DEVICE void run_prologue(int q8_block, const GemvParams& p, const BlockTiles& tiles, const ResidualWeights& weights,
                              u8* shared, const OverlappedWork& overlapped_work) {
  if constexpr (kHasFloatActivations) run_prologue_if<0>(q8_block, p, tiles, weights, shared, overlapped_work);
  if constexpr (kHasQ8Block32) run_prologue_if<kGroupElems>(q8_block, p, tiles, weights, shared, overlapped_work);
  if constexpr (kHasQ8Block256) run_prologue_if<kSegmentElems>(q8_block, p, tiles, weights, shared, overlapped_work);
}

ZINC_DEVICE void run_problem(const GemvParams& p, const GemvProblem& problem, u8* shared) {
  constexpr int kBatch = panels_per_batch(kShape), kBatchRows = kBatch * kBlockRows,
                kBufferFloats = kBatchRows * kPanelTiles;
  static_assert(kBatchRows <= kGemvThreads);
  __shared__ RoutedExperts routed;
  const Panels panels(p, problem, routed.ids);
  const BlockTiles tiles;
  Mbarrier *full = reinterpret_cast<Mbarrier*>(shared), *done = full + 2 * kMaxStages;  // done: tiles of all blocks
  if (warp_id() == kGemvWarps - 1) {
    static_assert(kMaxStages == 32);
    mbarrier_init(full + lane_id());
    full[kMaxStages + lane_id()] = 0;
    if (kClusterSize > 1 && lane_id() == 0) {
      mbarrier_init(done);
      mbarrier_arrive_expect_tx(done, panels.count() * kPanelTiles * kBlockRows * static_cast<int>(sizeof(float)));
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if constexpr (kClusterSize > 1) cluster_arrive();
  constexpr bool kReadsInputEarly = kShape.reads_before_wait != 0 && kShape.n_experts_used > 0,
                 kRoutesEarly =
                     kShape.routes_before_wait != 0 || (kShape.reads_before_wait != 0 && kShape.n_combined > 0);
  float* norm = reinterpret_cast<float*>(shared + kSmem.norm_weight);
  const int q8_block = q8_block_of(problem.format);
  if constexpr (kReadsInputEarly) {
    GemvPrologue<0>::load_norm_weight(p.input, norm);
    run_prologue(q8_block, p, tiles, ResidualWeights(p.input), shared, [] {});
  }
  if constexpr (kClusterSize > 1) cluster_wait();
  TileSource source{};
  if (warp_id() == kGemvWarps - 1) {
    with_format(problem.format, Formats{}, LocateFirst{panels, tiles, source});
    keep_in_register(source.from);
    keep_in_register(source.expert);
    keep_in_register(source.n_bytes);
  }
  if constexpr (kHasExperts) {
    if constexpr (!kRoutesEarly) wait_inputs();
    if constexpr (kShape.n_experts > 0) {
      route_experts(p.route, routed);
    } else {
      load_experts(p, routed);
    }
  }
  if (warp_id() == kGemvWarps - 1) {
    with_format(problem.format, Formats{}, StartPipeline{shared, panels, source});
    __syncwarp();
  }
  float* partial_sums = norm + (kClusterSize > 1 && is_normed(kShape.input) ? kShape.n_in : 0);
  if constexpr (!kReadsInputEarly) GemvPrologue<0>::load_norm_weight(p.input, norm);
  const ResidualWeights weights(p.input);
  constexpr u32 kUnsignedRows = kBlockRows;  // unsigned, so that division is a shift
  const int panel = static_cast<int>(threadIdx.x / kUnsignedRows),
            block_row = static_cast<int>(threadIdx.x % kUnsignedRows);
  const int row = (kClusterSize > 1 ? cluster_rank() : 0) * kBlockRows + block_row;
  Output output;
  output.find(panels, panel, min(kBatch, panels.count()), row);
  if constexpr (!kHasExperts || kRoutesEarly) wait_inputs();
  if constexpr (kShape.n_experts_used > 0 && kShape.n_experts > 0) store_experts(p.route, routed);
  const auto load = [&] { output.load(panels); };
  if constexpr (kReadsInputEarly) {
    load();
  } else {
    run_prologue(q8_block, p, tiles, weights, shared, load);
  }
  const int pair = warp_id() / 2;
  PipelineState state{TileCursor(tiles, q8_block == 0 ? warp_id() : pair), pair};
  int buffer = 0;
  for (int first = 0; first < panels.count(); first += kBatch, buffer ^= 1) {
    float* partial = partial_sums + buffer * kBufferFloats;
    const int end = min(first + kBatch, panels.count());
    with_format(problem.format, Formats{}, RunTiles{shared, panels, tiles, first, end, state, partial, done});
    if constexpr (kClusterSize > 1) {
      mbarrier_wait_cluster(done);
    } else {
      named_barrier_sync<kGemvThreads>(1);
    }
    output.write(panels, routed, partial + panel * kPanelTiles * kBlockRows + block_row);
    if constexpr (kBatch < kShape.max_panels) {
      output.find(panels, end + panel, min(end + kBatch, panels.count()), row);
      output.load(panels);
    }
  }
}

// Grid: the blocks of all problems.
extern "C" __global__ void __launch_bounds__(gemv_threads(kShape), 2) gemv(__grid_constant__ const GemvParams p) {
  extern __shared__ float4 shared[];
  if constexpr (kShape.launches_dependents_late == 0) launch_dependents();
  prefetch_params(p);
  int i = 0;
#pragma unroll 1
  while (i + 1 < p.n_problems && static_cast<int>(blockIdx.x) >= p.problems[i + 1].first_block) ++i;
  const GemvProblem& problem = p.problems[kShape.n_parts == 1 ? 0 : i];
  u8* bytes = reinterpret_cast<u8*>(shared);
  if constexpr (kHasFloatActivations) {
    if (problem.is_split_k) return with_format(problem.format, Formats{}, RunSplitK{p, problem, bytes});
  }
  run_problem(p, problem, bytes);
}

}  // namespace zinc::simt
