// Qwen2 and Qwen2.5 dense: grouped-query attention with biases on q, k and v.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t ff_dim = m.count("feed_forward_length");
  const AttentionOptions attention{.rope = read_rope(m, RopePairs::halves, dims.head_dim),
                                   .scale = default_attention_scale(dims.head_dim)};
  build_decoder(
      g, c, eps,
      {.token_mixer = [&](const LayerWeights& w, int l,
                          Value x) { return attention_block(g, w, l, x, dims, attention); },
       .ffn = [&](const LayerWeights& w, int, Value x) { return gated_ffn(g, w, x, Act::silu, c.dim, ff_dim); }});
}

}  // namespace

extern const Architecture k_architecture_qwen2 = {.gguf_name = "qwen2", .build = build};

}  // namespace zinc
