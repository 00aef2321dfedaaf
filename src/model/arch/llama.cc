// Llama, Mistral, SmolLM2 and their kin: pre-norm blocks, grouped attention with adjacent-pair rotation, SwiGLU or
// routed experts (Mixtral).
#include <algorithm>
#include <cmath>

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
  const RopeParams rope = read_rope(m, RopePairs::adjacent, head_dim);
  const MoeOptions moe{.route = {.n_used = m.count_or("expert_used_count", 0)}};

  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    const size_t i = static_cast<size_t>(l);
    const int64_t q_dim = heads[i] * head_dim, kv_dim = kv_heads[i] * head_dim;
    const Value factors = g.optional_weight("rope_freqs.weight", {rope.n_dims / 2});
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    Value q = g.linear(h, w("attn_q.weight", {q_dim, c.dim}), w.optional("attn_q.bias", {q_dim}));
    Value k = g.linear(h, w("attn_k.weight", {kv_dim, c.dim}), w.optional("attn_k.bias", {kv_dim}));
    Value v = g.linear(h, w("attn_v.weight", {kv_dim, c.dim}), w.optional("attn_v.bias", {kv_dim}));
    q = g.rope(g.heads(q, heads[i]), rope, factors);  // [T, heads, head_dim]
    k = g.rope(g.heads(k, kv_heads[i]), rope, factors);
    v = g.heads(v, kv_heads[i]);
    const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
    const Value a = g.attention({q, k, v}, {.cache_layer = l, .scale = scale});  // [T, q_dim]
    x = g.add(x, g.linear(a, w("attn_output.weight", {c.dim, q_dim}), w.optional("attn_output.bias", {c.dim})));
    h = g.rms_norm(x, w("ffn_norm.weight", {c.dim}), eps);
    h = n_experts > 0 ? routed_experts(g, w, h, {c.dim, n_experts, ff_dims[i]}, moe)
                      : gated_ffn(g, w, h, Act::silu, c.dim, ff_dims[i]);
    x = g.add(x, h);
    g.label(x, "l_out-" + std::to_string(l));
  }
  finish_with_logits(g, c, x, eps);
}

}  // namespace

extern const Architecture k_llama = {.gguf_name = "llama", .build = build};

}  // namespace zinc
