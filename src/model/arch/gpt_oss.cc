// GPT-OSS: grouped attention with learned sinks and biases, every other layer a sliding window, YaRN; all
// feed-forward layers are routed experts with the clamped SwiGLU.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const int64_t heads = m.count("attention.head_count");
  const int64_t kv_heads = m.count_or("attention.head_count_kv", heads);
  const int64_t head_dim = m.count_or("attention.key_length", c.dim / heads);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t window = m.count("attention.sliding_window");
  const int64_t period = m.count_or("attention.sliding_window_pattern", 2);
  const MoeDims experts{c.dim, m.count("expert_count"), m.count("expert_feed_forward_length")};
  const MoeOptions moe{.act = Act::swiglu_oai,
                       .route = {.n_used = m.count("expert_used_count"), .weights = RouteWeights::softmax_of_chosen},
                       .biases = true};
  AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, head_dim),
                             .scale = default_attention_scale(head_dim)};

  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    attention.window = is_window_layer(l, period) ? window : 0;
    attention.sinks = w("attn_sinks.weight", {heads});
    Value h = g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps);
    x = g.add(x, attention_block(g, w, l, h, {c.dim, heads, kv_heads, head_dim}, attention));
    h = g.rms_norm(x, w("post_attention_norm.weight", {c.dim}), eps);
    x = g.add(x, routed_experts(g, w, h, experts, moe));
    g.label(x, "l_out-" + std::to_string(l));
  }
  finish_with_logits(g, c, x, eps);
}

}  // namespace

extern const Architecture k_architecture_gpt_oss = {.gguf_name = "gpt-oss", .build = build};

}  // namespace zinc
