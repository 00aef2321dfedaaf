// Gemma 3: norms are stored as the difference from one. The published configs leave out values that are the default of
// the class.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

// Of Gemma3TextConfig.
constexpr int64_t kDefaultHeads = 8, kDefaultKvHeads = 4, kDefaultHeadDim = 256, kDefaultContext = 131072;
constexpr int64_t kDefaultPeriod = 6;

// Every n-th layer has full attention; a file without the key means every sixth.
void set_window(ModelMapping& m, int64_t n_layers) {
  CheckpointConfig& config = m.config();
  int64_t period =
      config.count_or("sliding_window_pattern", config.count_or("_sliding_window_pattern", kDefaultPeriod));
  m.set_count("attention.sliding_window", config.count_or("sliding_window", 4096));
  if (period < 1) return m.unsupported("'sliding_window_pattern' is {}", period);
  if (period != kDefaultPeriod) m.set_count("attention.sliding_window_pattern", period);
  const std::vector<std::string> types = config.texts("layer_types");
  for (size_t l = 0; l < types.size() && std::cmp_less(l, n_layers); ++l) {
    const bool is_full = (static_cast<int64_t>(l) + 1) % period == 0;
    if (types[l] == (is_full ? "full_attention" : "sliding_attention")) continue;
    return m.unsupported("layer {} has '{}', but one in {} layers should have full attention", l, types[l], period);
  }
}

void map(ModelMapping& m) {
  CheckpointConfig& config = m.config();
  config.set_default("num_attention_heads", kDefaultHeads);
  config.set_default("num_key_value_heads", kDefaultKvHeads);
  config.set_default("head_dim", kDefaultHeadDim);
  config.set_default("max_position_embeddings", kDefaultContext);
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c, "gelu_pytorch_tanh");
  set_rope_keys(m, config.rope(), c.head_dim);
  if (!config.rope().has("rope_theta")) m.set_real("rope.freq_base", 1e6);
  CheckpointConfig sliding = config.sliding_rope();
  if (sliding.has("rope_theta")) m.set_real("rope.freq_base_swa", sliding.real_or("rope_theta", 0));
  set_window(m, c.n_layers);
  constexpr int64_t kLayersOf27B = 62;
  const int64_t scale_dim = c.n_layers == kLayersOf27B ? c.dim / c.heads : c.head_dim;
  if (config.count_or("query_pre_attn_scalar", scale_dim) != scale_dim) {
    m.unsupported("'query_pre_attn_scalar' must be {} in this architecture", scale_dim);
  }
  if (config.has("attn_logit_softcapping")) m.unsupported("'attn_logit_softcapping' is not supported");
  if (config.has("final_logit_softcapping")) {
    m.set_real("final_logit_softcapping", config.real_or("final_logit_softcapping", 0));
  }
  for (int l = 0; l < c.n_layers; ++l) {
    const std::string to = output_layer(l), from = source_layer(l);
    m.add(to + "attn_norm.weight", from + "input_layernorm.weight", {.transform = add_one});
    add_attention(m, to, from, c, {.norm = add_one});
    m.add(to + "post_attention_norm.weight", from + "post_attention_layernorm.weight", {.transform = add_one});
    m.add(to + "ffn_norm.weight", from + "pre_feedforward_layernorm.weight", {.transform = add_one});
    add_ffn(m, to, from + "mlp.");
    m.add(to + "post_ffw_norm.weight", from + "post_feedforward_layernorm.weight", {.transform = add_one});
  }
  config.set_default("tie_word_embeddings", true);
  add_ends(m, add_one);
}

constexpr std::array<std::string_view, 2> kClasses = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};

}  // namespace

extern const Family k_family_gemma3 = {
    .gguf_name = "gemma3", .class_names = kClasses, .map = map, .tokenizer = TokenizerKind::no_space_prefix};

}  // namespace zinc
