// Qwen3.5 MoE: the layers of qwen35, with routed experts and a shared expert.
#include "model/hybrid_blocks.h"

namespace zinc {
namespace {

HybridFamily describe(const HybridDims& d, const SharedExpertDims& experts, GraphBuilder& g) {
  return {.sharing = HeadSharing::cyclic,
          .projections = [&](const LayerWeights& w, Value x) { return separate_projections(g, w, x, d); },
          .ffn = [&](const LayerWeights& w, Value x) { return experts_with_shared(g, w, x, experts); }};
}

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouterNormalization::softmax_normalized);
  build_hybrid(g, c, dims, describe(dims, experts, g));
}

void build_draft(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouterNormalization::softmax_normalized);
  build_mtp_block(g, c, dims, describe(dims, experts, g));
}

}  // namespace

extern const Architecture k_architecture_qwen35moe = {
    .gguf_name = "qwen35moe", .build = build, .build_draft = build_draft, .has_draft = has_mtp_block};

}  // namespace zinc
