// GPT-OSS: experts in MXFP4, which stay as they are, or in floats; gate and up rows alternate in the checkpoint.
#include <array>

#include "convert/family.h"
#include "convert/family_blocks.h"

namespace zinc {
namespace {

void add_experts_of_layer(ModelMapping& m, const std::string& to, const std::string& from) {
  const std::string both = from + "gate_up_proj", down = from + "down_proj";
  const bool is_mxfp4 = m.has(both + "_blocks");
  const std::vector<int64_t> shape = m.shape_of(is_mxfp4 ? both + "_blocks" : both);
  if (shape.size() != (is_mxfp4 ? 4u : 3u)) {
    return m.unsupported("tensor '{}' is {}, expected the experts of a layer", both, shape_text(shape));
  }
  const int64_t n_experts = shape[0], n_rows = is_mxfp4 ? shape[1] : shape[2];
  int64_t first = 0;
  for (const std::string_view name : {"gate", "up"}) {
    std::vector<int64_t> rows = rows_of_each(n_experts, n_rows, first++, n_rows, 2);
    const std::string output = fmt::format("{}ffn_{}_exps.weight", to, name);
    const std::vector<int64_t> of_bias = rows_of_each(1, n_rows, first - 1, n_rows, 2);
    if (is_mxfp4) {
      m.add_mxfp4(output, both + "_blocks", both + "_scales", std::move(rows));
    } else {  // [experts, dim, 2 x ff]
      m.add(output, both, {.rows = std::move(rows), .transposed = true});
    }
    m.add(fmt::format("{}ffn_{}_exps.bias", to, name), both + "_bias", {.columns = of_bias});
  }
  if (is_mxfp4) {
    m.add_mxfp4(to + "ffn_down_exps.weight", down + "_blocks", down + "_scales", {});
  } else {
    m.add(to + "ffn_down_exps.weight", down, {.transposed = true});
  }
  m.add(to + "ffn_down_exps.bias", down + "_bias");
}

void map(ModelMapping& m) {
  CheckpointConfig& config = m.config();
  const DecoderConfig c = read_decoder(m);
  set_decoder_keys(m, c);
  set_rope_keys(m, config.rope(), c.head_dim);
  m.set_count("expert_count", config.count(config.has("num_local_experts") ? "num_local_experts" : "num_experts"));
  m.set_count("expert_used_count",
              config.count(config.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token"));
  m.set_count("attention.sliding_window", config.count("sliding_window"));
  m.set_count("expert_feed_forward_length", config.count("intermediate_size"));
  const std::vector<std::string> types = config.texts("layer_types");
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] == (l % 2 == 0 ? "sliding_attention" : "full_attention")) continue;
    m.unsupported("layer {} has '{}'; sliding windows and full attention must alternate", l, types[l]);
  }
  for (int l = 0; l < c.n_layers; ++l) {
    const std::string to = output_layer(l), from = source_layer(l);
    m.add(to + "attn_norm.weight", from + "input_layernorm.weight");
    add_attention(m, to, from, c);
    m.add(to + "attn_sinks.weight", from + "self_attn.sinks");
    m.add(to + "post_attention_norm.weight", from + "post_attention_layernorm.weight");
    m.add(to + "ffn_gate_inp.weight", from + "mlp.router.weight");
    m.add(to + "ffn_gate_inp.bias", from + "mlp.router.bias");
    add_experts_of_layer(m, to, from + "mlp.experts.");
  }
  add_ends(m);
}

constexpr std::array<std::string_view, 1> kClasses = {"GptOssForCausalLM"};

}  // namespace

extern const Family k_family_gpt_oss = {.gguf_name = "gpt-oss", .class_names = kClasses, .map = map};

}  // namespace zinc
