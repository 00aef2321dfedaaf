#include "convert/family_blocks.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zinc {
namespace {

// The divisors of the RoPE frequencies of Llama 3.1: 1 for short wave lengths, `factor` for long ones.
std::vector<float> llama3_factors(CheckpointConfig& rope, int64_t head_dim) {
  const double base = rope.real_or("rope_theta", 10000), factor = rope.real_or("factor", 8);
  const double low = rope.real_or("low_freq_factor", 1), high = rope.real_or("high_freq_factor", 4);
  const double context = rope.real_or("original_max_position_embeddings", 8192);
  std::vector<float> factors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(head_dim);
    const double wave_length = 2 * std::numbers::pi * std::pow(base, exponent);
    const double smooth = (context / wave_length - low) / (high - low);
    const double divisor = wave_length < context / high  ? 1
                           : wave_length > context / low ? factor
                                                         : 1 / ((1 - smooth) / factor + smooth);
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

void set_yarn_keys(ModelMapping& m, CheckpointConfig& rope) {
  const double factor = rope.real_or("factor", 1);
  m.set("rope.scaling.type", "yarn");
  m.set_real("rope.scaling.factor", factor);
  m.set_count("rope.scaling.original_context_length",
              rope.count_or("original_max_position_embeddings", m.config().count_or("max_position_embeddings", 0)));
  const double usual = 0.1 * std::log(factor) + 1;
  if (std::abs(rope.real_or("attention_factor", usual) - usual) > 1e-4) {
    m.unsupported("YaRN with an attention_factor other than {:.4f} is not supported", usual);
  }
  if (!rope.flag_or("truncate", true)) {
    m.warn("YaRN's ramp is rounded to whole dimensions ('truncate' is false): GGUF files cannot say otherwise");
  }
  if (rope.has("beta_fast")) m.set_real("rope.scaling.yarn_beta_fast", rope.real_or("beta_fast", 0));
  if (rope.has("beta_slow")) m.set_real("rope.scaling.yarn_beta_slow", rope.real_or("beta_slow", 0));
}

}  // namespace

void add_one(std::span<float> values) {
  for (float& value : values) value += 1;
}

std::vector<int64_t> interleaved_rope_rows(int64_t n_heads, int64_t head_dim) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < n_heads; ++head) {
    for (int64_t i = 0; i < head_dim; ++i) rows.push_back(head * head_dim + i % 2 * (head_dim / 2) + i / 2);
  }
  return rows;
}

std::vector<int64_t> rows_of_each(int64_t n, int64_t rows, int64_t first, int64_t end, int64_t step) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t row = first; row < end; row += step) out.push_back(i * rows + row);
  }
  return out;
}

std::string source_layer(int layer) { return fmt::format("model.layers.{}.", layer); }
std::string output_layer(int layer) { return fmt::format("blk.{}.", layer); }

DecoderConfig read_decoder(ModelMapping& m) {
  CheckpointConfig& config = m.config();
  DecoderConfig c{};
  c.dim = config.count("hidden_size");
  c.n_layers = config.count("num_hidden_layers");
  c.heads = config.count("num_attention_heads");
  c.kv_heads = config.count_or("num_key_value_heads", c.heads);
  c.head_dim = config.count_or("head_dim", c.dim / std::max<int64_t>(1, c.heads));
  constexpr int64_t kMaxLayers = 1024, kMaxHeads = 4096, kMaxHeadDim = 4096;  // far above any published model
  const auto is_in = [](int64_t value, int64_t limit) { return value > 0 && value <= limit; };
  if (is_in(c.n_layers, kMaxLayers) && is_in(c.heads, kMaxHeads) && is_in(c.kv_heads, kMaxHeads) &&
      is_in(c.head_dim, kMaxHeadDim)) {
    return c;
  }
  m.unsupported("{} layers with {} attention heads, {} key-value heads and a head size of {} are not supported",
                c.n_layers, c.heads, c.kv_heads, c.head_dim);
  return {.dim = 1, .n_layers = 0, .heads = 1, .kv_heads = 1, .head_dim = 1};
}

void set_decoder_keys(ModelMapping& m, const DecoderConfig& c, std::string_view activation) {
  CheckpointConfig& config = m.config();
  m.set_count("block_count", c.n_layers);
  m.set_count("context_length", config.count("max_position_embeddings"));
  m.set_count("embedding_length", c.dim);
  if (config.has("intermediate_size")) m.set_count("feed_forward_length", config.count("intermediate_size"));
  m.set_count("attention.head_count", c.heads);
  m.set_count("attention.head_count_kv", c.kv_heads);
  m.set_real("attention.layer_norm_rms_epsilon", config.real_or("rms_norm_eps", 1e-6));
  if (config.has("head_dim")) {
    m.set_count("attention.key_length", c.head_dim);
    m.set_count("attention.value_length", c.head_dim);
  }
  const std::string found = config.text_or("hidden_act", config.text_or("hidden_activation", activation));
  if (found != activation) {
    m.unsupported("the activation '{}' is not supported in this architecture; expected '{}'", found, activation);
  }
}

void set_rope_keys(ModelMapping& m, const CheckpointConfig& rope_config, int64_t head_dim, bool factors) {
  CheckpointConfig rope = rope_config;
  if (rope.has("rope_theta")) m.set_real("rope.freq_base", rope.real_or("rope_theta", 0));
  const std::string type = rope.text_or("rope_type", "default");
  if (type == "linear") {
    m.set("rope.scaling.type", "linear");
    m.set_real("rope.scaling.factor", rope.real_or("factor", 1));
  } else if (type == "yarn") {
    set_yarn_keys(m, rope);
  } else if (type == "llama3" && factors) {
    m.add_values("rope_freqs.weight", llama3_factors(rope, head_dim));
  } else if (type != "default") {
    m.unsupported("the RoPE scaling '{}' is not supported in this architecture", type);
  }
  if (!rope.status().ok()) m.fail_with(rope.status().error());
}

void set_llama_keys(ModelMapping& m, const DecoderConfig& c, bool rope_factors) {
  m.set_count("vocab_size", m.config().count("vocab_size"));
  m.set_count("rope.dimension_count", c.head_dim);
  set_rope_keys(m, m.config().rope(), c.head_dim, rope_factors);
  warn_of_sliding_window(m, "");
}

void warn_of_sliding_window(ModelMapping& m, std::string_view flag) {
  CheckpointConfig& config = m.config();
  if (!flag.empty() && !config.flag_or(flag, false)) return;
  const int64_t window = config.count_or("sliding_window", 0);
  if (window == 0 || window >= config.count("max_position_embeddings")) return;
  m.warn(
      fmt::format("attention has a window of {} tokens, which GGUF files of this architecture do not store: beyond "
                  "it, answers may differ from the checkpoint's",
                  window));
}

void add_ends(ModelMapping& m, void (*norm)(std::span<float>)) {
  m.add("token_embd.weight", "model.embed_tokens.weight");
  m.add("output_norm.weight", "model.norm.weight", {.transform = norm});
  if (m.config().flag_or("tie_word_embeddings", !m.has("lm_head.weight"))) {
    m.ignore("lm_head.weight");
  } else {
    m.add("output.weight", "lm_head.weight");
  }
}

void add_attention(ModelMapping& m, const std::string& to, const std::string& from, const DecoderConfig& c,
                   const LayerOptions& options) {
  const auto project = [&](std::string_view name, std::string_view source, int64_t n_heads, bool rotated) {
    for (const std::string_view part : {".weight", ".bias"}) {
      TensorOptions how;
      if (rotated && options.interleaved_rope && !m.has_failed()) how.rows = interleaved_rope_rows(n_heads, c.head_dim);
      const std::string source_name = fmt::format("{}self_attn.{}{}", from, source, part);
      const std::string output_name = fmt::format("{}{}{}", to, name, part);
      if (part == ".weight") m.add(output_name, source_name, std::move(how));
      if (part == ".bias") m.add_if_present(output_name, source_name, std::move(how));
    }
  };
  project("attn_q", "q_proj", c.heads, true);
  project("attn_k", "k_proj", c.kv_heads, true);
  project("attn_v", "v_proj", c.kv_heads, false);
  project("attn_output", "o_proj", c.heads, false);
  m.add_if_present(to + "attn_q_norm.weight", from + "self_attn.q_norm.weight", {.transform = options.norm});
  m.add_if_present(to + "attn_k_norm.weight", from + "self_attn.k_norm.weight", {.transform = options.norm});
}

void add_ffn(ModelMapping& m, const std::string& to, const std::string& from, std::string_view suffix) {
  for (const std::string_view name : {"gate", "up", "down"}) {
    m.add(fmt::format("{}ffn_{}{}.weight", to, name, suffix), fmt::format("{}{}_proj.weight", from, name));
    m.add_if_present(fmt::format("{}ffn_{}{}.bias", to, name, suffix), fmt::format("{}{}_proj.bias", from, name));
  }
}

void add_experts(ModelMapping& m, const std::string& to, const std::string& from, const ExpertNames& names) {
  const std::string fused = from + "gate_up_proj";
  if (m.has(fused)) {  // [experts, 2 x ff, dim]: gate, then up
    const std::vector<int64_t> shape = m.shape_of(fused);
    if (shape.size() != 3) return m.unsupported("tensor '{}' is {}, expected 3 dimensions", fused, shape_text(shape));
    const int64_t half = shape[1] / 2;
    m.add(to + "ffn_gate_exps.weight", fused, {.rows = rows_of_each(shape[0], shape[1], 0, half)});
    m.add(to + "ffn_up_exps.weight", fused, {.rows = rows_of_each(shape[0], shape[1], half, 2 * half)});
    m.add(to + "ffn_down_exps.weight", from + "down_proj");
    return;
  }
  CheckpointConfig& config = m.config();
  const int64_t n_experts = config.count(config.has("num_experts") ? "num_experts" : "num_local_experts");
  constexpr int64_t kMaxExperts = 4096;
  if (n_experts > kMaxExperts) return m.unsupported("{} experts are not supported, at most {}", n_experts, kMaxExperts);
  const auto stack = [&](std::string_view output, std::string_view source) {
    std::vector<std::string> sources;
    for (int64_t e = 0; e < n_experts; ++e) sources.push_back(fmt::format("{}{}.{}.weight", from, e, source));
    m.add_stacked(fmt::format("{}{}.weight", to, output), sources);
  };
  stack("ffn_gate_exps", names.gate);
  stack("ffn_up_exps", names.up);
  stack("ffn_down_exps", names.down);
}

void add_dense_layer(ModelMapping& m, int layer, const DecoderConfig& c, const LayerOptions& options) {
  const std::string to = output_layer(layer), from = source_layer(layer);
  m.add(to + "attn_norm.weight", from + "input_layernorm.weight", {.transform = options.norm});
  add_attention(m, to, from, c, options);
  m.add(to + "ffn_norm.weight", from + "post_attention_layernorm.weight", {.transform = options.norm});
  add_ffn(m, to, from + "mlp.");
}

void set_expert_keys(ModelMapping& m, bool normalized) {
  CheckpointConfig& config = m.config();
  m.set_count("expert_count", config.count(config.has("num_experts") ? "num_experts" : "num_local_experts"));
  m.set_count("expert_used_count", config.count("num_experts_per_tok"));
  if (config.has("moe_intermediate_size")) {
    m.set_count("expert_feed_forward_length", config.count("moe_intermediate_size"));
  }
  if (config.has("shared_expert_intermediate_size")) {
    m.set_count("expert_shared_feed_forward_length", config.count("shared_expert_intermediate_size"));
  }
  if (config.flag_or("norm_topk_prob", normalized) != normalized) {
    m.unsupported("'norm_topk_prob' must be {} in this architecture", normalized);
  }
  const json::value* const dense = config.find("mlp_only_layers");
  const bool has_dense = dense && dense->is_array() && !dense->get_array().empty();
  if (has_dense || config.count_or("decoder_sparse_step", 1) != 1) {
    m.unsupported(
        "layers without experts ('mlp_only_layers', 'decoder_sparse_step') are not supported in this architecture");
  }
}

void add_qwen_experts(ModelMapping& m, const std::string& to, const std::string& from, bool shared) {
  m.add(to + "ffn_gate_inp.weight", from + "mlp.gate.weight");
  add_experts(m, to, from + "mlp.experts.");
  if (!shared) return;
  m.add(to + "ffn_gate_inp_shexp.weight", from + "mlp.shared_expert_gate.weight");
  add_ffn(m, to, from + "mlp.shared_expert.", "_shexp");
}

}  // namespace zinc
