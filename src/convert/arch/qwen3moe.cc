// Qwen3 MoE.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c);
  set_rope_keys(m, m.config().rope(), c.head_dim);
  set_expert_keys(m, /*normalized=*/true);
  warn_of_sliding_window(m, "use_sliding_window");
  for (int l = 0; l < c.n_layers; ++l) {
    const std::string to = output_layer(l), from = source_layer(l);
    m.add(to + "attn_norm.weight", from + "input_layernorm.weight");
    add_attention(m, to, from, c);
    m.add(to + "ffn_norm.weight", from + "post_attention_layernorm.weight");
    add_qwen_experts(m, to, from, /*shared=*/false);
  }
  add_ends(m);
}

constexpr std::array<std::string_view, 1> kClasses = {"Qwen3MoeForCausalLM"};

}  // namespace

extern const Family k_family_qwen3moe = {.gguf_name = "qwen3moe", .class_names = kClasses, .map = map};

}  // namespace zinc
