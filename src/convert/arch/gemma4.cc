// Gemma 4: dense, with per-layer embeddings, or with experts beside the FFN. Sliding and full layers differ in head
// size and key-value heads; the last layers may have no keys and values of their own.
#include <algorithm>
#include <array>
#include <string>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

struct Gemma4Config {
  DecoderConfig decoder;
  std::vector<bool> is_sliding;  // by layer
  int64_t full_head_dim, full_kv_heads, per_layer_dim, n_shared_kv;
};

// A value of the layers with full attention: its own key, or in per_layer_config of one of them.
int64_t full_layer_count(CheckpointConfig& config, const std::vector<bool>& is_sliding, std::string_view key,
                         std::string_view layer_key, int64_t fallback) {
  if (config.has(key)) return config.count(key);
  const CheckpointConfig layers = config.section("per_layer_config");
  for (size_t l = 0; l < is_sliding.size(); ++l) {
    CheckpointConfig layer = layers.section(std::to_string(l));
    if (!is_sliding[l] && layer.has(layer_key)) return layer.count(layer_key);
  }
  return fallback;
}

Gemma4Config read_config(ModelMapping& m) {
  CheckpointConfig& config = m.config();
  Gemma4Config c{};
  c.decoder = read_decoder(m);
  for (const std::string& type : config.texts("layer_types")) c.is_sliding.push_back(type == "sliding_attention");
  if (c.is_sliding.size() != static_cast<size_t>(c.decoder.n_layers)) {
    m.unsupported("'layer_types' has {} layers, expected {}", c.is_sliding.size(), c.decoder.n_layers);
    c.is_sliding.resize(static_cast<size_t>(c.decoder.n_layers));
  }
  const auto full = [&](std::string_view key, std::string_view layer_key, int64_t fallback) {
    return full_layer_count(config, c.is_sliding, key, layer_key, fallback);
  };
  c.full_head_dim = full("global_head_dim", "head_dim", c.decoder.head_dim);
  c.full_kv_heads = full("num_global_key_value_heads", "num_key_value_heads", c.decoder.kv_heads);
  c.per_layer_dim = config.count_or("hidden_size_per_layer_input", 0);
  c.n_shared_kv = config.count_or("num_kv_shared_layers", 0);
  constexpr int64_t kMaxHeadDim = 4096;  // far above any published model
  if (c.full_head_dim > 0 && c.full_head_dim <= kMaxHeadDim && c.n_shared_kv <= c.decoder.n_layers) return c;
  m.unsupported("heads of {} with {} layers that share keys and values are not supported", c.full_head_dim,
                c.n_shared_kv);
  c.full_head_dim = 1;
  return c;
}

template <class T>
std::vector<T> per_layer(const Gemma4Config& c, T sliding, T full) {
  std::vector<T> values;
  for (const bool is_sliding : c.is_sliding) values.push_back(is_sliding ? sliding : full);
  return values;
}

void set_attention_keys(ModelMapping& m, const Gemma4Config& c) {
  CheckpointConfig& config = m.config();
  m.set_count("attention.shared_kv_layers", c.n_shared_kv);
  m.set("attention.sliding_window_pattern", per_layer(c, true, false));
  m.set_count("attention.sliding_window", config.count("sliding_window"));
  m.set_count("attention.key_length", c.full_head_dim);
  m.set_count("attention.value_length", c.full_head_dim);
  m.set_count("attention.key_length_swa", c.decoder.head_dim);
  m.set_count("attention.value_length_swa", c.decoder.head_dim);
  if (c.full_kv_heads != c.decoder.kv_heads) {
    m.set("attention.head_count_kv",
          per_layer(c, static_cast<int32_t>(c.decoder.kv_heads), static_cast<int32_t>(c.full_kv_heads)));
  }
}

// RoPE of full layers rotates only the first dimensions of each half: the others get frequencies that are next to zero.
void set_rope(ModelMapping& m, const Gemma4Config& c) {
  CheckpointConfig full = m.config().rope(), sliding = m.config().sliding_rope();
  m.set_real("rope.freq_base", full.real_or("rope_theta", 1e6));
  m.set_real("rope.freq_base_swa", sliding.real_or("rope_theta", 1e4));
  m.set_count("rope.dimension_count", c.full_head_dim);
  const double rotated = sliding.real_or("partial_rotary_factor", 1);
  m.set_count("rope.dimension_count_swa", static_cast<int64_t>(static_cast<double>(c.decoder.head_dim) * rotated));
  const std::string type = full.text_or("rope_type", "default");
  if (type != "proportional") m.unsupported("the RoPE '{}' is not supported; expected 'proportional'", type);
  constexpr float kUnrotated = 1e30f;
  const double share = full.real_or("partial_rotary_factor", 1);
  const auto n_rotated = static_cast<size_t>(static_cast<double>(c.full_head_dim) * std::clamp(share, 0.0, 1.0) / 2);
  std::vector<float> factors(static_cast<size_t>(c.full_head_dim / 2), kUnrotated);
  std::fill_n(factors.begin(), std::min(n_rotated, factors.size()), 1.0f);
  m.add_values("rope_freqs.weight", std::move(factors));
}

void set_ffn_keys(ModelMapping& m, const Gemma4Config& c) {
  CheckpointConfig& config = m.config();
  m.set_count("embedding_length_per_layer_input", c.per_layer_dim);
  if (config.flag_or("use_double_wide_mlp", false)) {
    std::vector<int32_t> widths;
    for (int64_t l = 0; l < c.decoder.n_layers; ++l) {
      const bool is_shared = l >= c.decoder.n_layers - c.n_shared_kv;
      widths.push_back(static_cast<int32_t>(config.count("intermediate_size") * (is_shared ? 2 : 1)));
    }
    m.set("feed_forward_length", widths);
  }
  if (!config.flag_or("enable_moe_block", false)) return;
  m.set_count("expert_count", config.count("num_experts"));
  m.set_count("expert_used_count", config.count("top_k_experts"));
  m.set_count("expert_feed_forward_length",
              config.count(config.has("moe_intermediate_size") ? "moe_intermediate_size" : "expert_intermediate_size"));
}

void add_layer_attention(ModelMapping& m, const std::string& to, const std::string& from) {
  m.add(to + "attn_norm.weight", from + "input_layernorm.weight");
  m.add(to + "attn_q.weight", from + "self_attn.q_proj.weight");
  m.add(to + "attn_q_norm.weight", from + "self_attn.q_norm.weight");
  m.add_if_present(to + "attn_k.weight", from + "self_attn.k_proj.weight");
  m.add_if_present(to + "attn_k_norm.weight", from + "self_attn.k_norm.weight");
  m.add_if_present(to + "attn_v.weight", from + "self_attn.v_proj.weight");
  m.add(to + "attn_output.weight", from + "self_attn.o_proj.weight");
  m.add(to + "post_attention_norm.weight", from + "post_attention_layernorm.weight");
}

void add_layer_ffn(ModelMapping& m, const std::string& to, const std::string& from) {
  m.add(to + "ffn_norm.weight", from + "pre_feedforward_layernorm.weight");
  add_ffn(m, to, from + "mlp.");
  m.add(to + "post_ffw_norm.weight", from + "post_feedforward_layernorm.weight");
  m.add_if_present(to + "layer_output_scale.weight", from + "layer_scalar");
  if (!m.has(from + "router.proj.weight")) return;
  m.add(to + "pre_ffw_norm_2.weight", from + "pre_feedforward_layernorm_2.weight");
  m.add(to + "post_ffw_norm_1.weight", from + "post_feedforward_layernorm_1.weight");
  m.add(to + "post_ffw_norm_2.weight", from + "post_feedforward_layernorm_2.weight");
  m.add(to + "ffn_gate_inp.weight", from + "router.proj.weight");
  m.add(to + "ffn_gate_inp.scale", from + "router.scale");
  m.add(to + "ffn_down_exps.scale", from + "router.per_expert_scale");
  m.add(to + "ffn_gate_up_exps.weight", from + "experts.gate_up_proj");
  m.add(to + "ffn_down_exps.weight", from + "experts.down_proj");
}

void map(ModelMapping& m) {
  const Gemma4Config c = read_config(m);
  set_decoder_keys(m, c.decoder, "gelu_pytorch_tanh");
  set_attention_keys(m, c);
  set_rope(m, c);
  set_ffn_keys(m, c);
  CheckpointConfig& config = m.config();
  if (config.has("final_logit_softcapping")) {
    m.set_real("final_logit_softcapping", config.real_or("final_logit_softcapping", 0));
  }
  for (int l = 0; l < c.decoder.n_layers; ++l) {
    const std::string to = output_layer(l), from = source_layer(l);
    add_layer_attention(m, to, from);
    add_layer_ffn(m, to, from);
    if (c.per_layer_dim == 0) continue;
    m.add(to + "inp_gate.weight", from + "per_layer_input_gate.weight");
    m.add(to + "proj.weight", from + "per_layer_projection.weight");
    m.add(to + "post_norm.weight", from + "post_per_layer_input_norm.weight");
  }
  if (c.per_layer_dim > 0) {
    m.add("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight");
    m.add("per_layer_model_proj.weight", "model.per_layer_model_projection.weight");
    m.add("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight");
  }
  config.set_default("tie_word_embeddings", true);
  add_ends(m);
}

constexpr std::array<std::string_view, 2> kClasses = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};

}  // namespace

extern const Family k_family_gemma4 = {
    .gguf_name = "gemma4", .class_names = kClasses, .map = map, .tokenizer = TokenizerKind::gemma4};

}  // namespace zinc
