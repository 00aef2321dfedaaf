// MoE down and combine: the weighted sum of the selected experts' down projections, which have an input row each, plus
// the gated shared expert and the residual. Each of a few tokens has its own blocks. A program begins with the format
// (Formats), kShape, kPdl, and its policies: Rows, Experts and SharedDown.
#include "backend/simt/gemv_epilogue.h"
#include "backend/simt/gemv_pipeline.h"
#include "backend/simt/gemv_routing.h"

namespace zinc::simt {

// ---- policies ----

// The shared expert's down projection is one more matrix, gated by the sum of n_gate_splits partial sums.
template <int n_gate_splits>
struct GatedSharedDown {
  using Params = SharedExpert;
  static constexpr bool kExists = true;
  static ZINC_DEVICE const u8* bytes(const Params& p) { return p.bytes; }
  static ZINC_DEVICE const float* row(const Params& p) { return RowLayout::row(p.x, 0); }
  static ZINC_DEVICE float load_gate(const Params& p) {
    float gate = 0;
    for (int s = 0; s < n_gate_splits; ++s) gate += p.gate[block_token() * n_gate_splits + s];
    return gate;
  }
};
struct NoSharedDown {
  using Params = NoInput;
  static constexpr bool kExists = false;
  static ZINC_DEVICE const u8* bytes(const Params&) { return nullptr; }
  static ZINC_DEVICE const float* row(const Params&) { return nullptr; }
  static ZINC_DEVICE float load_gate(const Params&) { return 0; }
};

constexpr int kUsed = Experts::kUsed;
static_assert(kShape.n_matrices == kUsed + (SharedDown::kExists ? 1 : 0));
using Params = GemvMoeDownParams<Rows, Experts::Params, SharedDown::Params>;

// ---- input ----

// The experts' rows, floats or already quantized; the shared expert's row, floats, is the last.
struct ExpertRows : RowLayout {
  using Input = Params;
  using Segment = Vec8;
  static constexpr int kMaxInFlight = 3;
  const Params& p;

  static ZINC_DEVICE bool is_quantized(int row) {
    return kIsSame<Rows, QuantizedInput> && !(SharedDown::kExists && row == kUsed);
  }
  static ZINC_DEVICE int row_of_token(int row) { return block_token() * kUsed + row; }
  static ZINC_DEVICE const float* floats(const PlainInput& rows, int row) {
    return rows.x + static_cast<long long>(row_of_token(row)) * kWidth;
  }
  static ZINC_DEVICE const float* floats(const QuantizedInput&, int) { return nullptr; }
  template <int B>
  static ZINC_DEVICE void copy(const PlainInput&, int, int, int, u8*) {}
  template <int B>
  static ZINC_DEVICE void copy(const QuantizedInput& rows, int row, int s, int index, u8* to) {
    SharedRow<B>::copy(rows.q8, row_of_token(row), s, 0, index, to);
  }
  template <int B>
  ZINC_DEVICE void load(int, int index, Vec8& loaded, u8* to) const {
    const int row = index / kSegments, s = index - row * kSegments;
    if (is_quantized(row)) return copy<B>(p.input, row, s, index, to);
    const bool is_shared = SharedDown::kExists && row == kUsed;
    const float* x = is_shared ? SharedDown::row(p.shared_expert) : floats(p.input, row);
    loaded = RowLayout::load<kPdl.routes_before_wait != 0>(x, s * kSegmentElems + lane_id() * 8);
  }
  template <int B>
  ZINC_DEVICE void store(int, int index, const Vec8& loaded, u8* to) const {
    if (!is_quantized(index / kSegments)) SharedRow<B>::write(loaded, 0, index, to);
  }
};
// ---- epilogue ----

struct CombineEpilogue {
  float residual = 0, gate = 0;

  ZINC_DEVICE void load(const Params& p, const RoutedExperts& routed, int o) {
    if (p.residual) residual = p.residual[block_token() * p.n_out + o];
    gate = SharedDown::load_gate(p.shared_expert);
    for (int u = 0; u < kUsed; ++u) {
      const int id = routed.ids[u];
      if (p.matrix.bias) prefetch_l2(p.matrix.bias + static_cast<long long>(id) * p.n_out + o);
      if (p.matrix.scale) prefetch_l2(p.matrix.scale + id);
    }
  }
  // The weighted sum of experts in the order of moe_combine, then the shared expert.
  ZINC_DEVICE float value(const Params& p, const RoutedExperts& routed, int o, const float* partial) const {
    constexpr int kMatrixFloats = kInputSegments * kBlockRows;
    float sum = 0;
#pragma unroll 4
    for (int u = 0; u < kUsed; ++u) {
      float value = sum_segments(partial + u * kMatrixFloats, kBlockRows);
      if (p.matrix.scale) value *= p.matrix.scale[routed.ids[u]];
      if (p.matrix.bias) value += p.matrix.bias[static_cast<long long>(routed.ids[u]) * p.n_out + o];
      sum = fmaf(value, routed.weights[u], sum);
    }
    if constexpr (SharedDown::kExists)
      sum += gated(kSigmoid, gate, sum_segments(partial + kUsed * kMatrixFloats, kBlockRows));
    return p.residual ? residual + sum : sum;
  }
};

// ---- kernel ----

struct DownPanels : PanelRange {
  const Params& p;
  const RoutedExperts& routed;

  ZINC_DEVICE DownPanels(const Params& params, const RoutedExperts& experts)
      : PanelRange(params.split, block_of_token() / kClusterSize), p(params), routed(experts) {}
  ZINC_DEVICE int find_part(int&) const { return 0; }

  template <class F>
  ZINC_DEVICE void locate(const TileCursor& cursor, TileSource& source) const {
    source.find<F>(p.matrix.bytes, begin + cursor.panel, k_segment(cursor.tile));
    source.expert = cursor.tile / kInputSegments;
    if constexpr (SharedDown::kExists) {
      if (source.expert == kUsed) {
        source.from += SharedDown::bytes(p.shared_expert) - p.matrix.bytes;
        source.expert = -1;
      }
    }
  }
  ZINC_DEVICE const u8* bytes(const TileSource& source) const {
    return source.expert < 0 ? source.from : source.from + routed.ids[source.expert] * p.matrix_bytes;
  }

  ZINC_DEVICE int n_out(int) const { return p.n_out; }
  ZINC_DEVICE float* out(int, int, int o) const { return p.out + (block_token() * p.n_out + o); }
  ZINC_DEVICE void load(CombineEpilogue& epilogue, int, int, int o) const { epilogue.load(p, routed, o); }
  ZINC_DEVICE float value(const CombineEpilogue& epilogue, int, int o, const float* partial) const {
    return epilogue.value(p, routed, o, partial);
  }
};

ZINC_DEVICE void run_down(const Params& p, u8* shared) {
  constexpr int kFormat = 0;
  constexpr bool kRoutesEarly = kPdl.routes_before_wait != 0;
  __shared__ RoutedExperts routed;
  const DownPanels panels(p, routed);
  const BlockTiles tiles;
  const int q8_block = q8_block_of(kFormat);
  init_barriers(shared, panels);
  finish_init();
  const TileSource source = locate_first(kFormat, panels, tiles);
  if constexpr (!kRoutesEarly) wait_inputs();
  Experts::select(p.experts, routed);
  start_pipeline(kFormat, panels, tiles, source, shared);
  Output<CombineEpilogue> output;
  output.find(panels, 0);
  if constexpr (kRoutesEarly) wait_inputs();
  run_prologue(q8_block, SegmentsPrologue<ExpertRows>{}, p, tiles, shared, [&] { output.load(panels); });
  run_mainloop(kFormat, q8_block, panels, tiles, shared, output);
}

extern "C" __global__ void __launch_bounds__(kGemvThreads, kBlocksPerSm)
    gemv_moe_down(__grid_constant__ const Params p) {
  extern __shared__ float4 shared[];
  if constexpr (kPdl.triggers_late == 0) launch_dependents();
  prefetch_params(p);
  if (is_past_last_token(p.n_rows)) return wait_inputs();
  run_down(p, reinterpret_cast<u8*>(shared));
}

}  // namespace zinc::simt
