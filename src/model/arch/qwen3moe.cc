// Qwen3 MoE: the attention of qwen3, with routed experts.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const MoeDims experts{c.dim, m.count("expert_count"), m.count("expert_feed_forward_length")};
  const MoeOptions moe{.route = {.n_used = m.count("expert_used_count")}};
  const AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, dims.head_dim),
                                   .qk_norm_eps = eps,
                                   .scale = default_attention_scale(dims.head_dim)};
  build_decoder(g, c, eps,
                {.token_mixer = [&](const LayerWeights& w, int l,
                                    Value x) { return attention_block(g, w, l, x, dims, attention); },
                 .ffn = [&](const LayerWeights& w, int, Value x) { return routed_experts(g, w, x, experts, moe); }});
}

}  // namespace

extern const Architecture k_architecture_qwen3moe = {.gguf_name = "qwen3moe", .build = build};

}  // namespace zinc
