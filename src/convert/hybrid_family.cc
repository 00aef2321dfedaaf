#include "convert/hybrid_family.h"

#include <cmath>

namespace zinc {
namespace {

struct DeltaNetDims {
  int64_t k_heads, v_heads, k_dim, v_dim;
};

void negative_exp(std::span<float> values) {
  for (float& value : values) value = -std::exp(value);
}

// Source rows of value heads of `dim` rows each, behind `first` rows that stay.
std::vector<int64_t> cyclic_heads(const DeltaNetDims& d, int64_t first, int64_t dim) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < first; ++row) rows.push_back(row);
  const int64_t group = d.v_heads / d.k_heads;
  for (int64_t head = 0; head < d.v_heads; ++head) {
    const int64_t source = head % d.k_heads * group + head / d.k_heads;
    for (int64_t i = 0; i < dim; ++i) rows.push_back(first + source * dim + i);
  }
  return rows;
}

// Rows of in_proj_qkvz: per key head its query, its key, the values of its value heads, their z.
std::vector<int64_t> packed_rows(const DeltaNetDims& d, int64_t begin, int64_t n) {
  const int64_t per_head = 2 * d.k_dim + 2 * d.v_heads / d.k_heads * d.v_dim;
  return rows_of_each(d.k_heads, per_head, begin, begin + n);
}

void add_packed_projections(ModelMapping& m, const std::string& to, const std::string& from, const DeltaNetDims& d) {
  const int64_t v_rows = d.v_heads / d.k_heads * d.v_dim;
  std::vector<int64_t> qkv;
  for (const auto& [begin, n] : {std::pair(int64_t{0}, d.k_dim), {d.k_dim, d.k_dim}, {2 * d.k_dim, v_rows}}) {
    const std::vector<int64_t> rows = packed_rows(d, begin, n);
    qkv.insert(qkv.end(), rows.begin(), rows.end());
  }
  m.add(to + "attn_qkv.weight", from + "in_proj_qkvz.weight", {.rows = std::move(qkv)});
  m.add(to + "attn_gate.weight", from + "in_proj_qkvz.weight", {.rows = packed_rows(d, 2 * d.k_dim + v_rows, v_rows)});
  m.add(to + "ssm_ba.weight", from + "in_proj_ba.weight");
}

void add_delta_net(ModelMapping& m, const std::string& to, const std::string& from, const DeltaNetDims& d,
                   const HybridLayout& layout) {
  const bool reorder = layout.cyclic_value_heads && d.v_heads != d.k_heads;
  const auto heads = [&](int64_t first, int64_t dim) {
    return reorder ? cyclic_heads(d, first, dim) : std::vector<int64_t>();
  };
  const int64_t qk_rows = 2 * d.k_heads * d.k_dim, v_rows = d.v_heads * d.v_dim;
  if (layout.packed_projections) {
    add_packed_projections(m, to, from, d);
  } else {
    m.add(to + "attn_qkv.weight", from + "in_proj_qkv.weight", {.rows = heads(qk_rows, d.v_dim)});
    m.add(to + "attn_gate.weight", from + "in_proj_z.weight", {.rows = heads(0, d.v_dim)});
    m.add(to + "ssm_alpha.weight", from + "in_proj_a.weight", {.rows = heads(0, 1)});
    m.add(to + "ssm_beta.weight", from + "in_proj_b.weight", {.rows = heads(0, 1)});
  }
  m.add(to + "ssm_a", from + "A_log", {.rows = heads(0, 1), .transform = negative_exp});
  m.add(to + "ssm_dt.bias", from + "dt_bias", {.rows = heads(0, 1)});
  m.add(to + "ssm_norm.weight", from + "norm.weight");
  m.add(to + "ssm_out.weight", from + "out_proj.weight", {.columns = heads(0, d.v_dim)});
  // [channels, 1, taps] of a grouped convolution: one matrix of one row per channel.
  const std::vector<int64_t> taps = m.shape_of(from + "conv1d.weight");
  if (taps.size() != 3 || taps[1] != 1 || taps[0] != qk_rows + v_rows) {
    return m.unsupported("tensor '{}conv1d.weight' is {}, expected [{},1,taps]", from, shape_text(taps),
                         qk_rows + v_rows);
  }
  m.add(to + "ssm_conv1d.weight", from + "conv1d.weight",
        {.rows = heads(qk_rows, d.v_dim), .shape = Shape{taps[0], taps[2]}});
}

void add_layer(ModelMapping& m, const std::string& to, const std::string& from, const DecoderConfig& c,
               const DeltaNetDims& d, const HybridLayout& layout) {
  m.add(to + "attn_norm.weight", from + "input_layernorm.weight", {.transform = add_one});
  if (m.has(from + "linear_attn.out_proj.weight")) {
    add_delta_net(m, to, from + "linear_attn.", d, layout);
  } else {
    add_attention(m, to, from, c, {.norm = add_one});
  }
  m.add(to + "post_attention_norm.weight", from + "post_attention_layernorm.weight", {.transform = add_one});
  if (layout.has_experts) {
    add_qwen_experts(m, to, from, /*shared=*/true);
  } else {
    add_ffn(m, to, from + "mlp.");
  }
}

void add_draft_block(ModelMapping& m, const std::string& to, const DecoderConfig& c, const DeltaNetDims& d,
                     const HybridLayout& layout) {
  add_layer(m, to, "mtp.layers.0.", c, d, layout);
  m.add(to + "nextn.eh_proj.weight", "mtp.fc.weight");
  m.add(to + "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", {.transform = add_one});
  m.add(to + "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", {.transform = add_one});
  m.add(to + "nextn.shared_head_norm.weight", "mtp.norm.weight", {.transform = add_one});
  m.add_if_present(to + "nextn.embed_tokens.weight", "mtp.embed_tokens.weight");
}

// Which layers have attention must be what "every n-th" gives.
int64_t full_attention_interval(ModelMapping& m, const DecoderConfig& c) {
  constexpr int64_t kUsual = 4;
  const std::vector<std::string> types = m.config().texts("layer_types");
  int64_t interval = m.config().count_or("full_attention_interval", 0);
  for (size_t l = 0; interval == 0 && l < types.size(); ++l) {
    if (types[l] == "full_attention") interval = static_cast<int64_t>(l) + 1;
  }
  if (interval == 0) interval = kUsual;
  for (size_t l = 0; l < types.size() && std::cmp_less(l, c.n_layers); ++l) {
    const bool is_full = (static_cast<int64_t>(l) + 1) % interval == 0;
    if (types[l] == (is_full ? "full_attention" : "linear_attention")) continue;
    m.unsupported("layer {} has '{}', but one in {} layers should have full attention", l, types[l], interval);
  }
  return interval;
}

DeltaNetDims read_delta_net(ModelMapping& m) {
  CheckpointConfig& config = m.config();
  const DeltaNetDims d = {.k_heads = config.count("linear_num_key_heads"),
                          .v_heads = config.count("linear_num_value_heads"),
                          .k_dim = config.count("linear_key_head_dim"),
                          .v_dim = config.count("linear_value_head_dim")};
  constexpr int64_t kMax = 4096;  // far above any published model
  const bool is_valid = d.k_heads > 0 && d.v_heads > 0 && d.v_heads % d.k_heads == 0 && d.v_heads <= kMax &&
                        d.k_dim > 0 && d.k_dim <= kMax && d.v_dim == d.k_dim;
  if (is_valid) return d;
  m.unsupported("{} key heads of {} and {} value heads of {} in linear attention are not supported", d.k_heads, d.k_dim,
                d.v_heads, d.v_dim);
  return {1, 1, 1, 1};
}

void set_hybrid_keys(ModelMapping& m, const DecoderConfig& c, const DeltaNetDims& d) {
  CheckpointConfig& config = m.config();
  m.set_count("ssm.conv_kernel", config.count("linear_conv_kernel_dim"));
  m.set_count("ssm.state_size", d.k_dim);
  m.set_count("ssm.group_count", d.k_heads);
  m.set_count("ssm.time_step_rank", d.v_heads);
  m.set_count("ssm.inner_size", d.v_dim * d.v_heads);
  m.set_count("full_attention_interval", full_attention_interval(m, c));
  CheckpointConfig rope = config.rope();
  set_rope_keys(m, rope, c.head_dim);
  const double rotated = rope.real_or("partial_rotary_factor", 0.25);
  m.set_count("rope.dimension_count", static_cast<int64_t>(static_cast<double>(c.head_dim) * rotated));
  if (!config.flag_or("attn_output_gate", true)) m.unsupported("'attn_output_gate' must be true");
}

}  // namespace

void set_mrope_sections(ModelMapping& m) {
  std::vector<int32_t> sections = {11, 11, 10};  // of published models
  const CheckpointConfig rope = m.config().rope();
  if (const json::value* const own = rope.find("mrope_section"); own && own->is_array()) {
    sections.clear();
    for (const json::value& n : own->get_array()) {
      if (n.is_int64() && sections.size() < 4) sections.push_back(static_cast<int32_t>(n.get_int64()));
    }
  }
  sections.resize(4);  // time, height, width, and one that is not used
  m.set("rope.dimension_sections", sections);
}

void map_hybrid(ModelMapping& m, const HybridLayout& layout) {
  const DecoderConfig c = read_decoder(m);
  const DeltaNetDims d = read_delta_net(m);
  set_decoder_keys(m, c);
  set_hybrid_keys(m, c, d);
  if (layout.has_experts) set_expert_keys(m, /*normalized=*/true);
  for (int l = 0; l < c.n_layers; ++l) add_layer(m, output_layer(l), source_layer(l), c, d, layout);
  if (m.has("mtp.fc.weight")) {
    m.set_count("block_count", c.n_layers + 1);
    m.set_count("nextn_predict_layers", 1);
    add_draft_block(m, output_layer(static_cast<int>(c.n_layers)), c, d, layout);
  }
  add_ends(m, add_one);
}

}  // namespace zinc
