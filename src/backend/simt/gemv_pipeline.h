// Mainloop of the gemv kernels. A work tile is one K segment of a panel (32 interleaved rows). Tiles pass through a
// pipeline of stages in shared memory, filled by bulk copies; the first copies start before the block waits for its
// activations. Warp pairs process the tiles round-robin, 16 rows per warp (gemv_dot.h); the last reader of a stage
// refills it. Without bulk copies (before Hopper) each warp pair fills its own stages with cp.async. The blocks of a
// cluster split the tiles of their panels (split-K), and each reduces its share of the rows. A kernel's Panels says
// where tiles come from: locate<F>(cursor, source) and bytes(source). REQUIRES: kShape, kPdl.
#pragma once

#include "backend/simt/gemv_prologue.h"

namespace zinc::simt {

// ---- formats ----

// Runs `call` for the format with this index in Formats.
template <class Call, class First, class... Rest>
ZINC_DEVICE void with_format(int format, List<First, Rest...>, const Call& call) {
  if constexpr (sizeof...(Rest) > 0) {
    if (format != 0) return with_format(format - 1, List<Rest...>{}, call);
  }
  call.template run<First>();
}

struct FindQ8Block {
  int& q8_block;
  template <class F>
  ZINC_DEVICE void run() const {
    q8_block = F::kQ8Block;
  }
};
// Activations per scale, 0: floats.
ZINC_DEVICE int q8_block_of(int format) {
  int q8_block = 0;
  with_format(format, Formats{}, FindQ8Block{q8_block});
  return q8_block;
}
template <int B, class... F>
ZINC_HOST_DEVICE bool has_q8_block(List<F...>) {
  return ((F::kQ8Block == B) || ...);
}

// ---- input ----

ZINC_DEVICE void wait_inputs() {
  wait_dependency();
  if constexpr (kPdl.triggers_late != 0) launch_dependents();
}

// A token of the class that the step does not have, or a block behind the last token's.
ZINC_DEVICE bool is_past_last_token(const int* n_rows) { return kTokens > 1 && block_token() >= *n_rows; }

// Address of input segment 0. Shared memory holds all segments, or the block's; the address may then lie before it.
template <int B>
ZINC_DEVICE u8* input_row(u8* shared, const BlockTiles& tiles) {
  constexpr int kBytes = kColumns * input_segment_bytes(B == 0), kAll = kInputSegments * kShape.n_input_rows;
  u8* first = shared + kSmem.x;
  return kShape.x_bytes >= kAll * kBytes ? first : first - input_segment(tiles.begin) * kBytes;
}

template <int B, class Prologue, class Input, class OverlappedWork>
ZINC_DEVICE void run_prologue_if(int q8_block, const Prologue& prologue, const Input& input, const BlockTiles& tiles,
                                 u8* shared, const OverlappedWork& overlapped_work) {
  if constexpr (has_q8_block<B>(Formats{})) {
    if (q8_block != B) return;
    prologue.template prepare<B, max_block_segments(kShape)>(input, shared, input_row<B>(shared, tiles),
                                                             input_segment(tiles.begin),
                                                             input_segment(tiles.end - 1) + 1, overlapped_work);
    named_barrier_sync<kGemvThreads>(1);
  }
}
// overlapped_work() runs while the loads of this thread are in flight.
template <class Prologue, class Input, class OverlappedWork>
ZINC_DEVICE void run_prologue(int q8_block, const Prologue& prologue, const Input& input, const BlockTiles& tiles,
                              u8* shared, const OverlappedWork& overlapped_work) {
  run_prologue_if<0>(q8_block, prologue, input, tiles, shared, overlapped_work);
  run_prologue_if<kGroupElems>(q8_block, prologue, input, tiles, shared, overlapped_work);
  run_prologue_if<kSegmentElems>(q8_block, prologue, input, tiles, shared, overlapped_work);
}

// ---- weights ----

constexpr int kPairThreads = 64;
ZINC_DEVICE void sync_warp_pair() { named_barrier_sync<kPairThreads>(2 + warp_id() / 2); }

template <class F>
struct WeightPipeline {
  static constexpr int kStageBytes = PanelBytes<F>::kSegment, kStages = pipeline_stages(kShape, kStageBytes);
  static constexpr int kPairStages = kStages / kShape.n_warp_pairs;  // without bulk copies
  static constexpr bool kIsReused =
      kShape.max_panels * max_block_tiles(kShape) > kStages;  // else every tile has its own stage
  u8* bytes;
  Mbarrier* full;
  int* n_readers_done;  // per stage: warps that have read it

  ZINC_DEVICE explicit WeightPipeline(u8* shared)
      : bytes(shared + kSmem.pipeline),
        full(reinterpret_cast<Mbarrier*>(shared)),
        n_readers_done(reinterpret_cast<int*>(full + kMaxStages)) {}
  template <class Panels>
  ZINC_DEVICE void load(int stage, const Panels& panels, const TileSource& source) const {
    bulk_copy_expect_tx<kEvictFirst>(bytes + stage * kStageBytes, panels.bytes(source), source.n_bytes, full + stage);
  }
  // The parity of an mbarrier distinguishes only neighboring rounds: a warp pair other than the stage's previous
  // reader first waits for that reader.
  ZINC_DEVICE void wait(int stage, int round) const {
    if constexpr (!kHasBulkCopies) {
      cp_async_wait<kPairStages - 1>();
      return sync_warp_pair();
    }
    if (kStages % kShape.n_warp_pairs != 0 && round > 0) wait_arrivals(n_readers_done + stage, 2 * round);
    mbarrier_wait(full + stage, round & 1);
  }
  // Called by a warp that has read the stage's tile, at `cursor`.
  template <class Panels>
  ZINC_DEVICE void release(int stage, const Panels& panels, const BlockTiles& tiles, TileCursor cursor) const {
    if constexpr (!kHasBulkCopies) {
      if constexpr (kIsReused) {
        sync_warp_pair();
        cursor.advance(tiles, kStages);
        load_by_pair(stage, panels, cursor);
      }
      cp_async_commit();  // also without a copy: wait() counts the groups
    } else if constexpr (kIsReused) {
      __syncwarp();
      if (lane_id() != 0 || !arrive_is_last(n_readers_done + stage)) return;
      cursor.advance(tiles, kStages);
      if (cursor.panel >= panels.count()) return;
      TileSource source;
      panels.template locate<F>(cursor, source);
      load(stage, panels, source);
    }
  }

  // ---- without bulk copies ----

  // The first tiles of the warp pair, a commit group for each of its stages.
  template <class Panels>
  ZINC_DEVICE void start_pair(const Panels& panels, const BlockTiles& tiles) const {
    TileCursor cursor(tiles, warp_id() / 2);
#pragma unroll 1
    for (int stage = warp_id() / 2; stage < kStages; stage += kShape.n_warp_pairs) {
      load_by_pair(stage, panels, cursor);
      cp_async_commit();
      cursor.advance(tiles, kShape.n_warp_pairs);
    }
  }

 private:
  template <class Panels>
  ZINC_DEVICE void load_by_pair(int stage, const Panels& panels, const TileCursor& cursor) const {
    if (cursor.panel >= panels.count()) return;
    TileSource source;
    panels.template locate<F>(cursor, source);
    cp_async_weights<kPairThreads, kStageBytes>(bytes + stage * kStageBytes, panels.bytes(source), source.n_bytes,
                                                static_cast<int>(threadIdx.x) % kPairThreads);
  }
};

constexpr int kProducerWarp = kGemvWarps - 1;  // starts the pipeline

// Before the wait. The cluster's blocks may store to each other only after finish_init().
template <class Panels>
ZINC_DEVICE void init_barriers(u8* shared, const Panels& panels) {
  if constexpr (!kHasBulkCopies) return;
  Mbarrier *full = reinterpret_cast<Mbarrier*>(shared), *done = full + 2 * kMaxStages;  // done: tiles of all blocks
  if (warp_id() == kProducerWarp) {
    static_assert(kMaxStages == 32);
    mbarrier_init(full + lane_id());
    full[kMaxStages + lane_id()] = 0;
    if (kClusterSize > 1 && lane_id() == 0) {
      mbarrier_init(done);
      mbarrier_arrive_expect_tx(done, panels.count() * panel_floats(kShape) * static_cast<int>(sizeof(float)));
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if constexpr (kClusterSize > 1) cluster_arrive();
}
ZINC_DEVICE void finish_init() {
  if constexpr (kClusterSize > 1) cluster_wait();
}

template <class Panels>
struct LocateFirst {
  const Panels& panels;
  const BlockTiles& tiles;
  TileSource& source;
  template <class F>
  ZINC_DEVICE void run() const {
    const int lane = lane_id();
    if constexpr (F::kQ8Block > 0) {
      if (lane < WeightPipeline<F>::kStages && lane < panels.count() * tiles.count())
        panels.template locate<F>(TileCursor(tiles, lane), source);
    }
  }
};
template <class Panels>
struct LoadFirst {
  u8* shared;
  const Panels& panels;
  const BlockTiles& tiles;
  const TileSource& source;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block > 0) {
      if constexpr (!kHasBulkCopies) {
        WeightPipeline<F>(shared).start_pair(panels, tiles);
      } else if (source.n_bytes > 0) {
        WeightPipeline<F>(shared).load(lane_id(), panels, source);
      }
    }
  }
};
// The first tiles, a lane per stage; located before the experts are known. Only for bulk copies.
template <class Panels>
ZINC_DEVICE TileSource locate_first(int format, const Panels& panels, const BlockTiles& tiles) {
  TileSource source{};
  if (kHasBulkCopies && warp_id() == kProducerWarp) {
    with_format(format, Formats{}, LocateFirst<Panels>{panels, tiles, source});
    keep_in_register(source.from);
    keep_in_register(source.expert);
    keep_in_register(source.n_bytes);
  }
  return source;
}
template <class Panels>
ZINC_DEVICE void start_pipeline(int format, const Panels& panels, const BlockTiles& tiles, const TileSource& source,
                                u8* shared) {
  if (!kHasBulkCopies || warp_id() == kProducerWarp) {
    with_format(format, Formats{}, LoadFirst<Panels>{shared, panels, tiles, source});
    __syncwarp();
  }
}

// ---- tiles ----

// Stores a row's value of a tile, of one column, in the block that reduces the row.
ZINC_DEVICE void store_partial(float* partial, Mbarrier* done, int tile, int row, int column, float value) {
  float* to = partial + (tile * kBlockRows + row % kBlockRows) * kColumns + column;
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

// The tiles of panels `first` to `end` - 1.
template <class Panels>
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
    if constexpr (F::kQ8Block > 0) {
      run_quants<F>();
    } else if constexpr (kColumns == 1) {
      run_floats<F>();
    }
  }

 private:
  ZINC_DEVICE float* partial_of_panel() const { return partial + (state.cursor.panel - first) * panel_floats(kShape); }
  // Two warps per tile.
  template <class F>
  ZINC_DEVICE void run_quants() const {
    const WeightPipeline<F> pipeline(shared);
    const u8* x = input_row<F::kQ8Block>(shared, tiles);
#pragma unroll 1
    for (; state.cursor.panel < end; state.cursor.advance(tiles, kShape.n_warp_pairs)) {
      pipeline.wait(state.stage, state.round);
      const u8* segment = pipeline.bytes + state.stage * WeightPipeline<F>::kStageBytes;
      const auto release = [&] { pipeline.release(state.stage, panels, tiles, state.cursor); };
      if constexpr (!kUsesMma) {
        dot_tile<F>(segment, reinterpret_cast<const Q8Segment*>(x), release);
      } else {
        multiply_tile<F>(segment, reinterpret_cast<const Q8ColumnSegment<kColumns>*>(x), release);
      }
      state.stage += kShape.n_warp_pairs;
      if (state.stage >= WeightPipeline<F>::kStages) {
        state.stage -= WeightPipeline<F>::kStages;
        ++state.round;
      }
    }
  }
  // 16 rows of a tile by a warp. release() is called when the segment has been read.
  template <class F, class Release>
  ZINC_DEVICE void dot_tile(const u8* segment, const Q8Segment* x, const Release& release) const {
    const int row = warp_id() % 2 * kHalfRows + lane_id() % kHalfRows, tile = state.cursor.tile;
    const HalfSegment<F> half(segment, row);
    release();
    float values[kColumns];
    half.dot(x + input_segment(tile) * kColumns, groups_of(k_segment(tile)), values);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane_half() != 0) store_partial(partial_of_panel(), done, tile, row, c, values[c]);
    }
  }
  template <class F, class Release>
  ZINC_DEVICE void multiply_tile(const u8* segment, const Q8ColumnSegment<kColumns>* x, const Release& release) const {
    const int row = warp_id() % 2 * kHalfRows + lane_id() / 4, tile = state.cursor.tile;
    const SharedColumns<F, kColumns> columns(x[input_segment(tile)]);
    float values[1][4];
    mma_segment<F>(segment, row, columns, groups_of(k_segment(tile)), values);
    release();
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = lane_id() % 4 * 2 + e % 2;
      if (column < kColumns) {
        store_partial(partial_of_panel(), done, tile, row + e / 2 * 8, column, values[0][e]);
      }
    }
  }
  // Float weights, of one row, bypass the pipeline: one warp per tile.
  template <class F>
  ZINC_DEVICE void run_floats() const {
    const float* x = reinterpret_cast<const float*>(input_row<0>(shared, tiles));
#pragma unroll 1
    for (; state.cursor.panel < end; state.cursor.advance(tiles, kGemvWarps)) {
      const int tile = state.cursor.tile;
      TileSource source;
      panels.template locate<F>(state.cursor, source);
      float value[1];
      dot_float_segment<F>(panels.bytes(source), lane_id(), x + input_segment(tile) * kSegmentElems, 0,
                           groups_of(k_segment(tile)), value);
      store_partial(partial_of_panel(), done, tile, lane_id(), 0, value[0]);
    }
  }
};

// All tiles of the block, in batches of panels; `output` writes a batch's results.
template <class Panels, class Output>
ZINC_DEVICE void run_mainloop(int format, int q8_block, const Panels& panels, const BlockTiles& tiles, u8* shared,
                              Output& output) {
  constexpr int kBatch = panels_per_batch(kShape), kBufferFloats = kBatch * panel_floats(kShape);
  Mbarrier* done = reinterpret_cast<Mbarrier*>(shared) + 2 * kMaxStages;
  float* partial_sums =
      reinterpret_cast<float*>(shared + kSmem.norm_weight) + (kClusterSize > 1 && kShape.is_normed ? kShape.n_in : 0);
  const int pair = warp_id() / 2;
  PipelineState state{TileCursor(tiles, q8_block == 0 ? warp_id() : pair), pair};
  int buffer = 0;
  for (int first = 0; first < panels.count(); first += kBatch, buffer ^= 1) {
    float* partial = partial_sums + buffer * kBufferFloats;
    const int end = min(first + kBatch, panels.count());
    with_format(format, Formats{}, RunTiles<Panels>{shared, panels, tiles, first, end, state, partial, done});
    if constexpr (kClusterSize > 1) {
      mbarrier_wait_cluster(done);
    } else {
      named_barrier_sync<kGemvThreads>(1);
    }
    output.write(panels, partial);
    if constexpr (kBatch < kShape.max_panels) {
      output.find(panels, end);
      output.load(panels);
    }
  }
}

}  // namespace zinc::simt
