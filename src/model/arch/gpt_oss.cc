// GPT-OSS: grouped-query attention with attention sinks and biases, a sliding window in every other layer, YaRN; every
// FFN is routed experts with the clamped SwiGLU.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t window = m.count("attention.sliding_window");
  const int64_t period = m.count_or("attention.sliding_window_pattern", 2);
  const MoeDims experts{c.dim, m.count("expert_count"), m.count("expert_feed_forward_length")};
  const MoeOptions moe{
      .act = Act::swiglu_oai,
      .route = {.n_used = m.count("expert_used_count"), .weights = RouterNormalization::softmax_of_selected},
      .biases = true};
  const AttentionOptions full{.rope = read_rope(m, RopePairs::halves, dims.head_dim),
                              .scale = default_attention_scale(dims.head_dim)};
  build_decoder(g, c, eps,
                {.token_mixer =
                     [&](const LayerWeights& w, int l, Value x) {
                       AttentionOptions attention = full;
                       attention.window = is_sliding_layer(l, period) ? window : 0;
                       attention.sinks = w("attn_sinks.weight", {dims.heads});
                       return attention_block(g, w, l, x, dims, attention);
                     },
                 .ffn = [&](const LayerWeights& w, int, Value x) { return routed_experts(g, w, x, experts, moe); },
                 .ffn_norm = "post_attention_norm.weight"});
}

}  // namespace

extern const Architecture k_architecture_gpt_oss = {.gguf_name = "gpt-oss", .build = build};

}  // namespace zinc
