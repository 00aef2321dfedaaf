// SmolLM3: the decoder of llama, but every fourth layer has no positional encoding (NoPE).
#include "model/blocks.h"

namespace zinc {
namespace {

constexpr int kNopePeriod = 4;

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const AttentionDims dims = read_attention_dims(c, m);
  const float eps = m.real("attention.layer_norm_rms_epsilon");
  const int64_t ff_dim = m.count("feed_forward_length");
  const AttentionOptions rope{.rope = read_rope(m, RopePairs::adjacent, dims.head_dim),
                              .scale = default_attention_scale(dims.head_dim)};
  AttentionOptions nope = rope;
  nope.use_rope = false;
  build_decoder(
      g, c, eps,
      {.token_mixer =
           [&](const LayerWeights& w, int l, Value x) {
             return attention_block(g, w, l, x, dims, (l + 1) % kNopePeriod == 0 ? nope : rope);
           },
       .ffn = [&](const LayerWeights& w, int, Value x) { return gated_ffn(g, w, x, Act::silu, c.dim, ff_dim); }});
}

}  // namespace

extern const Architecture k_architecture_smollm3 = {.gguf_name = "smollm3", .build = build};

}  // namespace zinc
