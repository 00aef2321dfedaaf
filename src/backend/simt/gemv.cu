// out[o] = sum_k x[k] * weight[o, k]: gemv of decode (batch 1), at memory bandwidth, for several matrices of one input.
// A program begins with the formats of its matrices (Formats), kShape, kPdl, and its policies: Prologue, Epilogue and
// SplitKInput. A launch has a block for each multiprocessor; blocks without work also wait on the PDL dependency, to
// keep block placement (ADR 0015).
#include "backend/simt/gemv_epilogue.h"
#include "backend/simt/gemv_pipeline.h"

namespace zinc::simt {

using Part = Epilogue::Part<DenseMatrix>;
using Params = GemvParams<Part, Prologue::Input, SplitKInput>;

// The panels of a problem's parts, numbered consecutively.
struct DensePanels : PanelRange {
  const Params& p;
  int first_part;

  ZINC_DEVICE DensePanels(const Params& params, const GemvProblem& problem)
      : PanelRange(problem.split, (static_cast<int>(blockIdx.x) - problem.first_block) / kClusterSize),
        p(params),
        first_part(problem.first_part) {}
  // Index of a panel's part; `panel` becomes the index of the panel within it.
  ZINC_DEVICE int find_part(int& panel) const {
    if constexpr (kShape.n_parts == 1) return 0;
    int i = first_part;
#pragma unroll 1
    while (panel >= p.parts[i].n_panels) panel -= p.parts[i++].n_panels;
    return i;
  }
  ZINC_DEVICE const Part& part(int i) const { return p.parts[kShape.n_parts == 1 ? 0 : i]; }

  template <class F>
  ZINC_DEVICE void locate(const TileCursor& cursor, TileSource& source) const {
    int panel = begin + cursor.panel;
    const Part& of = part(find_part(panel));
    source.find<F>(of, panel, cursor.tile);
  }
  ZINC_DEVICE const u8* bytes(const TileSource& source) const { return source.from; }

  ZINC_DEVICE int n_out(int i) const { return part(i).n_out; }
  ZINC_DEVICE float* out(int i, int o) const { return part(i).out + o; }
  ZINC_DEVICE void load(Epilogue& epilogue, int i, int o) const { epilogue.load(part(i), 0, o); }
  ZINC_DEVICE float value(const Epilogue& epilogue, int i, int, const float* partial) const {
    return epilogue.value(part(i), 0, partial);
  }
};

// ---- split-K ----

// All segments as floats: of the row of the other blocks, or of a row of their own.
constexpr bool kHasSplitKRow = !kIsSame<SplitKInput, NoInput>;
ZINC_DEVICE void prepare_split_k(const NoInput&, const Params& p, const Prologue& prologue, u8* shared) {
  prologue.prepare<0, kInputSegments>(p.input, shared, shared + kSmem.x, 0, kInputSegments, [] {});
  named_barrier_sync<kGemvThreads>(1);
}
ZINC_DEVICE void prepare_split_k(const PlainInput& own, const Params&, const Prologue&, u8* shared) {
  for (int s = warp_id(); s < kInputSegments; s += kGemvWarps) {
    SharedRow<0>::write(RowLayout::load_row(own.x, s * kSegmentElems + lane_id() * 8), s, shared + kSmem.x);
  }
  named_barrier_sync<kGemvThreads>(1);
}

// One warp per segment of float weights; partial sums are stored unreduced. The first copies start before the wait.
template <class F>
ZINC_DEVICE void run_split_k(const Params& p, const GemvProblem& problem, u8* shared) {
  static_assert(!kHasSplitKRow || !kIsSame<Prologue, NormResidualPrologue>,
                "split-K blocks would store the residual in pieces");
  const PanelRange range(problem.split, static_cast<int>(blockIdx.x) - problem.first_block);
  u8* stage = shared + kSmem.pipeline + warp_id() * PanelBytes<F>::kSegment;
  Mbarrier* full = reinterpret_cast<Mbarrier*>(shared) + warp_id();
  int tile = warp_id() < kShape.n_split_k_warps ? range.begin + warp_id() : range.end;
  const auto find = [&](int& panel, int& s) -> const Part& {
    int i = problem.first_part, in_part = tile;
#pragma unroll 1
    while (in_part >= p.parts[i].n_panels) in_part -= p.parts[i++].n_panels;
    panel = in_part / kInputSegments;
    s = in_part - panel * kInputSegments;
    return p.parts[i];
  };
  const auto load = [&] {
    if (tile >= range.end || (kHasBulkCopies && lane_id() != 0)) return;
    int panel, s;
    const Part& part = find(panel, s);
    TileSource source;
    source.find<F>(part.matrix.bytes, panel, s);
    if constexpr (kHasBulkCopies) {
      bulk_copy_expect_tx(stage, source.from, source.n_bytes, full);
    } else {
      cp_async_weights<32, PanelBytes<F>::kSegment>(stage, source.from, source.n_bytes, lane_id());
      cp_async_commit();
    }
  };
  const auto wait = [&](int parity) {
    if constexpr (kHasBulkCopies) {
      mbarrier_wait(full, parity);
    } else {
      cp_async_wait<0>();
      __syncwarp();
    }
  };
  if (kHasBulkCopies && lane_id() == 0) {
    mbarrier_init(full);
    fence_mbarrier_init();
  }
  load();
  __syncwarp();
  Prologue prologue;
  if constexpr (!kHasSplitKRow) prologue.begin(p.input, shared);
  wait_inputs();
  prepare_split_k(p.split_k_input, p, prologue, shared);
#pragma unroll 1
  for (int parity = 0; tile < range.end; parity ^= 1) {
    wait(parity);
    int panel, s;
    const Part& part = find(panel, s);
    const int o = panel * kPanelRows + lane_id();
    const float* x = reinterpret_cast<const float*>(shared + kSmem.x) + s * kSegmentElems;
    const float value = dot_float_segment<F>(stage, lane_id(), x, groups_of(s));
    if (o < part.n_out) part.out[s * part.n_out + o] = value;
    __syncwarp();
    tile += kShape.n_split_k_warps;
    load();
  }
}
struct RunSplitK {
  const Params& p;
  const GemvProblem& problem;
  u8* shared;
  template <class F>
  ZINC_DEVICE void run() const {
    if constexpr (F::kQ8Block == 0) run_split_k<F>(p, problem, shared);
  }
};

// ---- kernel ----

ZINC_DEVICE void run_problem(const Params& p, const GemvProblem& problem, u8* shared) {
  const DensePanels panels(p, problem);
  const BlockTiles tiles;
  const int q8_block = q8_block_of(problem.format);
  init_barriers(shared, panels);
  finish_init();
  start_pipeline(problem.format, panels, tiles, locate_first(problem.format, panels, tiles), shared);
  Prologue prologue;
  prologue.begin(p.input, shared);
  Output<Epilogue> output;
  output.find(panels, 0);
  wait_inputs();
  run_prologue(q8_block, prologue, p.input, tiles, shared, [&] { output.load(panels); });
  run_mainloop(problem.format, q8_block, panels, tiles, shared, output);
}

// Grid: the blocks of all problems.
extern "C" __global__ void __launch_bounds__(kGemvThreads, kBlocksPerSm) gemv(__grid_constant__ const Params p) {
  extern __shared__ float4 shared[];
  if constexpr (kPdl.triggers_late == 0) launch_dependents();
  prefetch_params(p);
  int i = 0;
#pragma unroll 1
  while (i + 1 < p.n_problems && static_cast<int>(blockIdx.x) >= p.problems[i + 1].first_block) ++i;
  const GemvProblem& problem = p.problems[kShape.n_parts == 1 ? 0 : i];
  u8* bytes = reinterpret_cast<u8*>(shared);
  if constexpr (has_q8_block<0>(Formats{})) {
    if (problem.is_split_k) return with_format(problem.format, Formats{}, RunSplitK{p, problem, bytes});
  }
  run_problem(p, problem, bytes);
}

}  // namespace zinc::simt
