// Qwen2 and Qwen2.5 dense: pre-norm blocks, grouped attention with biases on q, k and v.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const int64_t heads = m.count("attention.head_count");
  const int64_t kv_heads = m.count_or("attention.head_count_kv", heads);
  const int64_t head_dim = m.count_or("attention.key_length", c.dim / heads);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t ff_dim = m.count("feed_forward_length");
  const AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, head_dim),
                                   .scale = default_attention_scale(head_dim)};

  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    x = g.add(x, attention_block(g, w, l, h, {c.dim, heads, kv_heads, head_dim}, attention));
    h = g.rms_norm(x, w("ffn_norm.weight", {c.dim}), eps);
    x = g.add(x, gated_ffn(g, w, h, Act::silu, c.dim, ff_dim));
    g.label(x, "l_out-" + std::to_string(l));
  }
  finish_with_logits(g, c, x, eps);
}

}  // namespace

extern const Architecture k_architecture_qwen2 = {.gguf_name = "qwen2", .build = build};

}  // namespace zinc
