// Llama, Mistral, SmolLM2 and their kin: pre-norm blocks, grouped attention with adjacent-pair rotation, SwiGLU or
// routed experts (Mixtral).
#include <algorithm>

#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const std::vector<int64_t> heads = m.per_layer("attention.head_count", c.n_layers);
  const std::vector<int64_t> kv_heads =
      m.has("attention.head_count_kv") ? m.per_layer("attention.head_count_kv", c.n_layers) : heads;
  const std::vector<int64_t> ff_dims = m.per_layer("feed_forward_length", c.n_layers);
  const int64_t head_dim = m.count_or("attention.key_length", c.dim / std::max<int64_t>(1, heads[0]));
  const int64_t n_experts = m.count_or("expert_count", 0);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const MoeOptions moe{.route = {.n_used = n_experts > 0 ? m.count("expert_used_count") : 0}};
  AttentionOptions attention{.rope = read_rope(m, RopePairs::adjacent, head_dim),
                             .scale = default_attention_scale(head_dim)};
  attention.freq_factors = g.optional_weight("rope_freqs.weight", {attention.rope.n_dims / 2});

  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    const size_t i = static_cast<size_t>(l);
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    x = g.add(x, attention_block(g, w, l, h, {c.dim, heads[i], kv_heads[i], head_dim}, attention));
    h = g.rms_norm(x, w("ffn_norm.weight", {c.dim}), eps);
    h = n_experts > 0 ? routed_experts(g, w, h, {c.dim, n_experts, ff_dims[i]}, moe)
                      : gated_ffn(g, w, h, Act::silu, c.dim, ff_dims[i]);
    x = g.add(x, h);
    g.label(x, "l_out-" + std::to_string(l));
  }
  finish_with_logits(g, c, x, eps);
}

}  // namespace

extern const Architecture k_architecture_llama = {.gguf_name = "llama", .build = build};

}  // namespace zinc
