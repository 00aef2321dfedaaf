// Llama, Mistral, Mixtral, SmolLM2: heads are rotated by neighbors in GGUF, by halves in the checkpoint.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

void map(ModelMapping& m) {
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c);
  set_llama_keys(m, c);
  const bool has_experts = m.config().count_or("num_local_experts", 0) > 0;
  if (has_experts) set_expert_keys(m, /*normalized=*/true);
  const LayerOptions options{.interleaved_rope = true};
  for (int l = 0; l < c.n_layers; ++l) {
    if (!has_experts) {
      add_dense_layer(m, l, c, options);
      continue;
    }
    const std::string to = output_layer(l), from = source_layer(l);
    m.add(to + "attn_norm.weight", from + "input_layernorm.weight");
    add_attention(m, to, from, c, options);
    m.add(to + "ffn_norm.weight", from + "post_attention_layernorm.weight");
    m.add(to + "ffn_gate_inp.weight", from + "block_sparse_moe.gate.weight");
    add_experts(m, to, from + "block_sparse_moe.experts.", {.gate = "w1", .up = "w3", .down = "w2"});
  }
  add_ends(m);
}

constexpr std::array<std::string_view, 3> kClasses = {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"};

}  // namespace

extern const Family k_family_llama = {.gguf_name = "llama", .class_names = kClasses, .map = map};

}  // namespace zinc
