// Arcee AFM: the attention of llama; the FFN has no gate, its activation is squared ReLU.
#include "model/blocks.h"

namespace zinc {
namespace {

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const int64_t ff_dim = m.count("feed_forward_length");
  AttentionOptions attention{.rope = read_rope(m, RopePairs::adjacent, dims.head_dim),
                             .scale = default_attention_scale(dims.head_dim)};
  attention.rope_factors = read_rope_factors(g, attention.rope);
  build_decoder(g, c, m.real("attention.layer_norm_rms_epsilon"),
                {.token_mixer = [&](const LayerWeights& w, int l,
                                    Value x) { return attention_block(g, w, l, x, dims, attention); },
                 .ffn =
                     [&](const LayerWeights& w, int, Value x) {
                       const Value up = g.linear(x, w("ffn_up.weight", {ff_dim, c.dim}));
                       return g.linear(g.relu2(up), w("ffn_down.weight", {c.dim, ff_dim}));
                     }});
}

}  // namespace

extern const Architecture k_architecture_arcee = {.gguf_name = "arcee", .build = build};

}  // namespace zinc
