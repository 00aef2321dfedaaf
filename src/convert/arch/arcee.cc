// Arcee AFM: the attention of Llama, an FFN without a gate.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c, "relu2");
  set_llama_keys(m, c);
  for (int l = 0; l < c.n_layers; ++l) {
    const std::string to = output_layer(l), from = source_layer(l);
    m.add(to + "attn_norm.weight", from + "input_layernorm.weight");
    add_attention(m, to, from, c, {.interleaved_rope = true});
    m.add(to + "ffn_norm.weight", from + "post_attention_layernorm.weight");
    m.add(to + "ffn_up.weight", from + "mlp.up_proj.weight");
    m.add(to + "ffn_down.weight", from + "mlp.down_proj.weight");
  }
  add_ends(m);
}

constexpr std::array<std::string_view, 1> kClasses = {"ArceeForCausalLM"};

}  // namespace

extern const Family k_family_arcee = {.gguf_name = "arcee", .class_names = kClasses, .map = map};

}  // namespace zinc
