// Llama, Mistral, SmolLM2 and similar: pre-norm blocks, grouped-query attention with interleaved RoPE, SwiGLU or routed
// experts (Mixtral).
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
  attention.rope_factors = read_rope_factors(g, attention.rope);

  build_decoder(g, c, eps,
                {.token_mixer =
                     [&](const LayerWeights& w, int l, Value x) {
                       const size_t i = static_cast<size_t>(l);
                       return attention_block(g, w, l, x, {c.dim, heads[i], kv_heads[i], head_dim}, attention);
                     },
                 .ffn =
                     [&](const LayerWeights& w, int l, Value x) {
                       const int64_t ff_dim = ff_dims[static_cast<size_t>(l)];
                       return n_experts > 0 ? routed_experts(g, w, x, {c.dim, n_experts, ff_dim}, moe)
                                            : gated_ffn(g, w, x, Act::silu, c.dim, ff_dim);
                     }});
}

}  // namespace

extern const Architecture k_architecture_llama = {.gguf_name = "llama", .build = build};

}  // namespace zinc
