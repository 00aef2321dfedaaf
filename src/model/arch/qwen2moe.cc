// Qwen1.5-MoE and Qwen2-MoE: the attention of qwen2, routed experts whose weights are not normalised, and a shared one.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const int64_t heads = m.count("attention.head_count");
  const int64_t kv_heads = m.count_or("attention.head_count_kv", heads);
  const int64_t head_dim = m.count_or("attention.key_length", c.dim / heads);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouteWeights::softmax);
  const AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, head_dim),
                                   .scale = default_attention_scale(head_dim)};

  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    x = g.add(x, attention_block(g, w, l, h, {c.dim, heads, kv_heads, head_dim}, attention));
    h = g.rms_norm(x, w("ffn_norm.weight", {c.dim}), eps);
    x = g.add(x, experts_with_shared(g, w, h, experts));
    g.label(x, "l_out-" + std::to_string(l));
  }
  finish_with_logits(g, c, x, eps);
}

}  // namespace

extern const Architecture k_architecture_qwen2moe = {.gguf_name = "qwen2moe", .build = build};

}  // namespace zinc
