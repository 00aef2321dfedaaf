// Qwen1.5-MoE and Qwen2-MoE: the attention of qwen2, routed experts whose weights are not renormalized, and a shared
// expert.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouterNormalization::softmax);
  const AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, dims.head_dim),
                                   .scale = default_attention_scale(dims.head_dim)};
  build_decoder(g, c, eps,
                {.token_mixer = [&](const LayerWeights& w, int l,
                                    Value x) { return attention_block(g, w, l, x, dims, attention); },
                 .ffn = [&](const LayerWeights& w, int, Value x) { return experts_with_shared(g, w, x, experts); }});
}

}  // namespace

extern const Architecture k_architecture_qwen2moe = {.gguf_name = "qwen2moe", .build = build};

}  // namespace zinc
