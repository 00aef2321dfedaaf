#include "model/hybrid_blocks.h"

#include <cmath>

namespace zinc {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;  // far above any published model

int64_t bounded(Metadata& m, std::string_view key, int64_t value) {
  if (value > 0 && value <= kMaxWidth) return value;
  m.fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' is {}, expected 1 to {}", m.file().name(),
                   m.full_key(key), value, kMaxWidth));
  return 1;
}

int64_t width(Metadata& m, std::string_view key) { return bounded(m, key, m.count(key)); }

// From a list of flags, or all but every n-th layer.
std::vector<bool> read_recurrent_layers(Metadata& m, int n_trunk) {
  std::vector<bool> is_recurrent;
  if (m.has("attention.recurrent_layers")) {
    for (int64_t flag : m.per_layer("attention.recurrent_layers", n_trunk)) is_recurrent.push_back(flag != 0);
    return is_recurrent;
  }
  constexpr int64_t kUsualInterval = 4;
  const int64_t interval = bounded(m, "full_attention_interval", m.count_or("full_attention_interval", kUsualInterval));
  for (int l = 0; l < n_trunk; ++l) is_recurrent.push_back((l + 1) % interval != 0);
  return is_recurrent;
}

int read_trunk_layers(const ModelConfig& c, Metadata& m) {
  const int64_t n_draft = m.count_or("nextn_predict_layers", 0);
  if (n_draft < c.n_layers) return c.n_layers - static_cast<int>(n_draft);
  m.fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' is {}, expected less than the file's {} blocks",
                   m.file().name(), m.full_key("nextn_predict_layers"), n_draft, c.n_layers));
  return 1;
}

// Attention whose query projection also computes a gate: each head has head_dim rows of query, then head_dim rows of
// gate.
Value gated_attention(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d, int layer) {
  const int64_t q_dim = d.heads * d.head_dim, kv_dim = d.kv_heads * d.head_dim;
  const Value packed = g.heads(g.linear(x, w("attn_q.weight", {2 * q_dim, d.dim})), d.heads);  // [T, heads, 2*head_dim]
  Value k = g.heads(g.linear(x, w("attn_k.weight", {kv_dim, d.dim})), d.kv_heads);
  const Value v = g.heads(g.linear(x, w("attn_v.weight", {kv_dim, d.dim})), d.kv_heads);
  const Value gate = g.flatten(g.slice(packed, d.head_dim, d.head_dim));  // [T, q_dim]
  Value q = g.slice(packed, 0, d.head_dim);                               // [T, heads, head_dim]
  q = g.rope(g.rms_norm(q, w("attn_q_norm.weight", {d.head_dim}), d.norm_eps), d.rope);
  k = g.rope(g.rms_norm(k, w("attn_k_norm.weight", {d.head_dim}), d.norm_eps), d.rope);
  const float scale = default_attention_scale(d.head_dim);
  const Value a = g.attention({q, k, v}, {.cache_layer = layer, .scale = scale});  // [T, q_dim]
  return g.linear(g.gated_act(Act::sigmoid, gate, a), w("attn_output.weight", {d.dim, q_dim}));
}

// Short convolution over q, k and v, gated delta rule, RMS norm per head, output gate z.
Value gated_delta_net(GraphBuilder& g, const LayerWeights& w, const DeltaNetProjections& in, const HybridDims& d,
                      const DeltaNetParams& params) {
  const Value qkv = g.short_conv(in.qkv, w("ssm_conv1d.weight", {d.qkv_dim(), d.conv_taps}),
                                 {.cache_layer = params.cache_layer});                      // [T, qkv_dim]
  const Value q = g.l2_norm(g.heads(g.slice(qkv, 0, d.key_dim()), d.k_heads), d.norm_eps);  // [T, k_heads, state_dim]
  const Value k = g.l2_norm(g.heads(g.slice(qkv, d.key_dim(), d.key_dim()), d.k_heads), d.norm_eps);
  const Value v = g.heads(g.slice(qkv, 2 * d.key_dim(), d.value_dim()), d.v_heads);  // [T, v_heads, state_dim]
  const Value out = g.delta_net({.q = q,
                                 .k = k,
                                 .v = v,
                                 .alpha = in.alpha,
                                 .beta = in.beta,
                                 .dt_bias = w("ssm_dt.bias", {d.v_heads}),
                                 .a = w("ssm_a", {d.v_heads})},
                                params);
  const Value normed = g.flatten(g.rms_norm(out, w("ssm_norm.weight", {d.state_dim}), d.norm_eps));  // [T, value_dim]
  return g.linear(g.gated_act(Act::silu, in.z, normed), w("ssm_out.weight", {d.dim, d.value_dim()}));
}

Value block(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d, const HybridFamily& family, int layer,
            bool is_recurrent) {
  Value h = g.rms_norm(x, w("attn_norm.weight", {d.dim}), d.norm_eps);
  if (is_recurrent) {
    const DeltaNetParams params{
        .cache_layer = layer, .sharing = family.sharing, .q_scale = 1 / std::sqrt(static_cast<float>(d.state_dim))};
    h = gated_delta_net(g, w, family.projections(w, h), d, params);
  } else {
    h = gated_attention(g, w, h, d, layer);
  }
  x = g.add(x, h);
  h = g.rms_norm(x, w("post_attention_norm.weight", {d.dim}), d.norm_eps);
  return g.add(x, family.ffn(w, h));
}

}  // namespace

HybridDims read_hybrid_dims(const ModelConfig& c, Metadata& m) {
  HybridDims d;
  d.dim = bounded(m, "embedding_length", c.dim);
  d.n_trunk = read_trunk_layers(c, m);
  d.is_recurrent = read_recurrent_layers(m, d.n_trunk);
  d.heads = width(m, "attention.head_count");
  d.kv_heads = width(m, "attention.head_count_kv");
  d.head_dim = bounded(m, "attention.key_length", m.count_or("attention.key_length", d.dim / d.heads));
  d.k_heads = width(m, "ssm.group_count");
  d.v_heads = width(m, "ssm.time_step_rank");
  d.state_dim = width(m, "ssm.state_size");
  d.conv_taps = width(m, "ssm.conv_kernel");
  d.norm_eps = m.real("attention.layer_norm_rms_epsilon");
  d.rope = read_rope(m, RopePairs::halves, d.head_dim);
  if (const int64_t inner = m.count("ssm.inner_size"); inner != d.value_dim()) {
    m.fail_with(fail(ErrorCode::invalid_input,
                     "{}: metadata '{}' is {}, expected {} (ssm.time_step_rank) x {} (ssm.state_size)", m.file().name(),
                     m.full_key("ssm.inner_size"), inner, d.v_heads, d.state_dim));
  }
  return d;
}

DeltaNetProjections separate_projections(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d) {
  return {.qkv = g.linear(x, w("attn_qkv.weight", {d.qkv_dim(), d.dim})),
          .z = g.linear(x, w("attn_gate.weight", {d.value_dim(), d.dim})),
          .alpha = g.linear(x, w("ssm_alpha.weight", {d.v_heads, d.dim})),
          .beta = g.linear(x, w("ssm_beta.weight", {d.v_heads, d.dim}))};
}

void build_hybrid(GraphBuilder& g, const ModelConfig& c, const HybridDims& d, const HybridFamily& family) {
  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, d.dim}));  // [T, dim]
  for (int l = 0; l < d.n_trunk; ++l) {
    x = block(g, g.layer(l), x, d, family, l, d.is_recurrent[static_cast<size_t>(l)]);
    g.label(x, "l_out-" + std::to_string(l));
  }
  build_output_head(g, c, x, d.norm_eps);
}

void build_mtp_block(GraphBuilder& g, const ModelConfig& c, const HybridDims& d, const HybridFamily& family) {
  const LayerWeights w = g.layer(d.n_trunk);
  const auto own_or = [&](const char* own, const char* trunks, const Shape& shape) {
    return w.has(own) ? w(own, shape) : g.weight(trunks, shape);
  };
  const Shape table = {c.vocab_size, d.dim};
  const Value token = g.embed(own_or("nextn.embed_tokens.weight", "token_embd.weight", table));
  const Value e = g.rms_norm(token, w("nextn.enorm.weight", {d.dim}), d.norm_eps);
  const Value h = g.rms_norm(g.hidden_in(d.dim), w("nextn.hnorm.weight", {d.dim}), d.norm_eps);
  Value x = g.linear(g.concat(e, h), w("nextn.eh_proj.weight", {d.dim, 2 * d.dim}));  // [T, dim]
  x = block(g, w, x, d, family, d.n_trunk, false);
  x = g.rms_norm(x, own_or("nextn.shared_head_norm.weight", "output_norm.weight", {d.dim}), d.norm_eps);
  g.hidden(x);
  const char* trunk_head = g.has_weight("output.weight") ? "output.weight" : "token_embd.weight";
  g.logits(g.linear(g.rows(x), own_or("nextn.shared_head_head.weight", trunk_head, table)));  // [R, vocab]
}

bool has_mtp_block(Metadata& m) { return m.count_or("nextn_predict_layers", 0) > 0; }

}  // namespace zinc
