// MoE gate and up (or one matrix) of a token's selected experts: the gemv of gemv.cu with the experts' outputs one
// after the other. Each of a few tokens has its own blocks. A program begins with the format (Formats), kShape, kPdl,
// and its policies: Prologue, Epilogue and Experts.
#include "backend/simt/gemv_epilogue.h"
#include "backend/simt/gemv_pipeline.h"
#include "backend/simt/gemv_routing.h"

namespace zinc::simt {

using Part = Epilogue::Part<ExpertMatrix>;
using Params = GemvExpertsParams<Part, Prologue::Input, Experts::Params>;

// The panels of all selected experts, numbered consecutively; a part is a selected expert.
struct ExpertPanels : PanelRange {
  const Params& p;
  const int* ids;

  ZINC_DEVICE ExpertPanels(const Params& params, const int* routed)
      : PanelRange(params.split, block_of_token() / kClusterSize), p(params), ids(routed) {}
  ZINC_DEVICE int find_part(int& panel) const {
    const int selected = panel / kShape.expert_panels;
    panel -= selected * kShape.expert_panels;
    return selected;
  }

  template <class F>
  ZINC_DEVICE void locate(const TileCursor& cursor, TileSource& source) const {
    int panel = begin + cursor.panel;
    const int selected = find_part(panel);
    source.find<F>(p.part, panel, cursor.tile);
    source.expert = selected;
  }
  ZINC_DEVICE const u8* bytes(const TileSource& source) const {
    return source.from + ids[source.expert] * p.matrix_bytes;
  }

  ZINC_DEVICE int n_out(int) const { return p.part.n_out; }
  ZINC_DEVICE float* out(int selected, int, int o) const {
    return p.part.out + ((block_token() * Experts::kUsed + selected) * p.part.n_out + o);
  }
  ZINC_DEVICE void load(Epilogue& epilogue, int selected, int, int o) const {
    epilogue.load(p.part, ids[selected], 0, o);
  }
  ZINC_DEVICE float value(const Epilogue& epilogue, int selected, int, const float* partial) const {
    return epilogue.value(p.part, ids[selected], partial);
  }
};

ZINC_DEVICE void run_experts(const Params& p, u8* shared) {
  constexpr int kFormat = 0;
  constexpr bool kRoutesEarly = kPdl.routes_before_wait != 0, kReadsRowEarly = kPdl.reads_row_before_wait != 0;
  __shared__ RoutedExperts routed;
  const ExpertPanels panels(p, routed.ids);
  const BlockTiles tiles;
  const int q8_block = q8_block_of(kFormat);
  init_barriers(shared, panels);
  Prologue prologue;
  if constexpr (kReadsRowEarly) {
    prologue.begin(p.input, shared);
    run_prologue(q8_block, prologue, p.input, tiles, shared, [] {});
  }
  finish_init();
  const TileSource source = locate_first(kFormat, panels, tiles);
  if constexpr (!kRoutesEarly) wait_inputs();
  Experts::select(p.experts, routed);
  start_pipeline(kFormat, panels, tiles, source, shared);
  if constexpr (!kReadsRowEarly) prologue.begin(p.input, shared);
  Output<Epilogue> output;
  output.find(panels, 0);
  if constexpr (kRoutesEarly) wait_inputs();
  Experts::store(p.experts, routed);
  if constexpr (kReadsRowEarly) {
    output.load(panels);
  } else {
    run_prologue(q8_block, prologue, p.input, tiles, shared, [&] { output.load(panels); });
  }
  run_mainloop(kFormat, q8_block, panels, tiles, shared, output);
}

extern "C" __global__ void __launch_bounds__(kGemvThreads, kBlocksPerSm)
    gemv_experts(__grid_constant__ const Params p) {
  extern __shared__ float4 shared[];
  if constexpr (kPdl.triggers_late == 0) launch_dependents();
  prefetch_params(p);
  if (is_past_last_token(p.n_rows)) return wait_inputs();
  run_experts(p, reinterpret_cast<u8*>(shared));
}

}  // namespace zinc::simt
