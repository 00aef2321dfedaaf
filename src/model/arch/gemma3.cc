// Gemma 3: scaled embeddings, norms before and after attention and FFN, GEGLU; five sliding-window layers with their
// own RoPE base, then a full-attention layer.
#include <cmath>

#include "model/blocks.h"

namespace zinc {
namespace {

constexpr int kLayersOf27B = 62;  // the only size that scales scores by dim / heads instead of the head size

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const int64_t heads = m.count("attention.head_count");
  const int64_t kv_heads = m.count_or("attention.head_count_kv", heads);
  const int64_t head_dim = m.count_or("attention.key_length", c.dim / heads);
  const int64_t ff_dim = m.count("feed_forward_length");
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t window = m.count_or("attention.sliding_window", 0);
  const int64_t period = m.count_or("attention.sliding_window_pattern", 6);
  AttentionOptions full{.rope = read_rope(m, RopePairs::halves, head_dim), .qk_norm_eps = eps};
  full.scale = default_attention_scale(c.n_layers == kLayersOf27B ? c.dim / heads : head_dim);
  AttentionOptions sliding = full;
  sliding.window = window;
  sliding.rope.theta = m.real_or("rope.freq_base_swa", 10000.0f);
  sliding.rope.position_scale = sliding.rope.amplitude = 1;
  sliding.rope.extension = {};

  const Value table = g.weight("token_embd.weight", {c.vocab_size, c.dim});
  Value x = g.scale(g.embed(table), std::sqrt(static_cast<float>(c.dim)));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    const AttentionOptions& attention = window > 0 && is_sliding_layer(l, period) ? sliding : full;
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    h = attention_block(g, w, l, h, {c.dim, heads, kv_heads, head_dim}, attention);
    x = g.add(x, g.rms_norm(h, w("post_attention_norm.weight", {c.dim}), eps));
    h = g.rms_norm(x, w("ffn_norm.weight", {c.dim}), eps);
    h = gated_ffn(g, w, h, Act::gelu, c.dim, ff_dim);
    x = g.add(x, g.rms_norm(h, w("post_ffw_norm.weight", {c.dim}), eps));
    g.label(x, "l_out-" + std::to_string(l));
  }
  build_output_head(g, c, x, eps, m.real_or("final_logit_softcapping", 0));
}

}  // namespace

extern const Architecture k_architecture_gemma3 = {.gguf_name = "gemma3", .build = build};

}  // namespace zinc
