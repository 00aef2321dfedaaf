// Qwen3.5 dense: gated DeltaNet layers, every fourth one gated attention, SwiGLU. Text only: with one position per
// token, interleaved M-RoPE is the same as RoPE.
#include "model/hybrid_blocks.h"

namespace zinc {
namespace {

HybridFamily describe(const HybridDims& d, Metadata& m, GraphBuilder& g) {
  const int64_t ff_dim = m.count("feed_forward_length");
  return {.sharing = HeadSharing::cyclic,
          .projections = [&](const LayerWeights& w, Value x) { return separate_projections(g, w, x, d); },
          .ffn = [&, ff_dim](const LayerWeights& w, Value x) { return gated_ffn(g, w, x, Act::silu, d.dim, ff_dim); }};
}

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  build_hybrid(g, c, dims, describe(dims, m, g));
}

void build_draft(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  build_mtp_block(g, c, dims, describe(dims, m, g));
}

}  // namespace

extern const Architecture k_architecture_qwen35 = {
    .gguf_name = "qwen35", .build = build, .build_draft = build_draft, .has_draft = has_mtp_block};

}  // namespace zinc
