#include "model/blocks.h"

#include <algorithm>
#include <cmath>

#include "base/sanitize_for_terminal.h"
#include "graph/rope.h"

namespace zinc {
namespace {

int64_t original_context(Metadata& m) {
  constexpr std::string_view kOriginal = "rope.scaling.original_context_length";
  return m.count(m.has(kOriginal) ? kOriginal : "context_length");
}

// A file that extends the context by itself keeps that for every sequence; others can be extended per sequence.
RopeExtension read_extension(Metadata& m, const std::string& scaling, const RopeParams& rope) {
  const int64_t trained = m.count_or("context_length", 0);
  if (scaling == "longrope") return {RopeExtensionKind::longrope, original_context(m), trained};
  if (scaling == "yarn" || rope.position_scale != 1 || trained == 0) return {};
  return {RopeExtensionKind::yarn, trained, kMaxRopeScalings * trained};
}

float read_attn_factor(Metadata& m) {
  constexpr std::string_view kKey = "rope.scaling.attn_factor";
  constexpr float kMax = 100;  // published ones are below 2; scores grow with its square
  const float factor = m.real_or(kKey, 1);
  if (factor > 0 && factor <= kMax) return factor;
  m.fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' is {}, expected more than 0 and at most {}",
                   m.file().name(), m.full_key(kKey), factor, kMax));
  return 1;
}

}  // namespace

RopeParams read_rope(Metadata& m, RopePairs pairs, int64_t head_dim) {
  RopeParams rope;
  rope.pairs = pairs;
  rope.n_dims = m.count_or("rope.dimension_count", head_dim);
  rope.theta = m.real_or("rope.freq_base", 10000.0f);
  const std::string scaling = m.text_or("rope.scaling.type", "linear");
  const float factor = m.real_or("rope.scaling.factor", m.real_or("rope.scale_linear", 0));
  if (scaling != "none" && factor > 0) rope.position_scale = 1 / factor;
  rope.amplitude = read_attn_factor(m);
  rope.yarn.beta_fast = m.real_or("rope.scaling.yarn_beta_fast", rope.yarn.beta_fast);
  rope.yarn.beta_slow = m.real_or("rope.scaling.yarn_beta_slow", rope.yarn.beta_slow);
  rope.extension = read_extension(m, scaling, rope);
  if (scaling == "yarn") {
    extend_with_yarn(rope, original_context(m));
  } else if (scaling != "none" && scaling != "linear" && scaling != "longrope") {
    m.fail_with(fail(ErrorCode::unsupported, "{}: metadata '{}' is '{}'; supported are none, linear, yarn, longrope",
                     m.file().name(), m.full_key("rope.scaling.type"), sanitize_for_terminal(scaling)));
  }
  return rope;
}

RopeFactors read_rope_factors(GraphBuilder& g, const RopeParams& rope) {
  const Shape shape{rope.n_dims / 2};
  if (rope.extension.kind != RopeExtensionKind::longrope) return {g.optional_weight("rope_freqs.weight", shape), {}};
  return {g.weight("rope_factors_short.weight", shape), g.weight("rope_factors_long.weight", shape)};
}

float default_attention_scale(int64_t head_dim) { return 1 / std::sqrt(static_cast<float>(head_dim)); }

bool is_sliding_layer(int layer, int64_t period) { return period == 0 || layer % period < period - 1; }

Value attention_block(GraphBuilder& g, const LayerWeights& w, int layer, Value x, const AttentionDims& d,
                      const AttentionOptions& options) {
  const int64_t q_dim = d.heads * d.head_dim, kv_dim = d.kv_heads * d.head_dim;
  const auto project = [&](const std::string& name, int64_t n_out, int64_t n_heads) {
    const Value bias = w.optional(name + ".bias", {n_out});
    return g.heads(g.linear(x, w(name + ".weight", {n_out, d.dim}), bias), n_heads);
  };
  Value q = project("attn_q", q_dim, d.heads);  // [T, heads, head_dim]
  Value k = project("attn_k", kv_dim, d.kv_heads);
  const Value v = project("attn_v", kv_dim, d.kv_heads);
  if (options.qk_norm_eps > 0) {
    q = g.rms_norm(q, w("attn_q_norm.weight", {d.head_dim}), options.qk_norm_eps);
    k = g.rms_norm(k, w("attn_k_norm.weight", {d.head_dim}), options.qk_norm_eps);
  }
  if (options.use_rope) {
    q = g.rope(q, options.rope, options.rope_factors.short_factors, options.rope_factors.long_factors);
    k = g.rope(k, options.rope, options.rope_factors.short_factors, options.rope_factors.long_factors);
  }
  const Value a = g.attention({q, k, v, options.sinks},
                              {.cache_layer = layer, .scale = options.scale, .window = options.window});  // [T, q_dim]
  return g.linear(a, w("attn_output.weight", {d.dim, q_dim}), w.optional("attn_output.bias", {d.dim}));
}

Value gated_ffn(GraphBuilder& g, const LayerWeights& w, Value x, Act act, int64_t dim, int64_t ff_dim) {
  const Value gate = g.linear(x, w("ffn_gate.weight", {ff_dim, dim}), w.optional("ffn_gate.bias", {ff_dim}));
  const Value up = g.linear(x, w("ffn_up.weight", {ff_dim, dim}), w.optional("ffn_up.bias", {ff_dim}));
  const Value h = g.gated_act(act, gate, up);  // [T, ff_dim]
  return g.linear(h, w("ffn_down.weight", {dim, ff_dim}), w.optional("ffn_down.bias", {dim}));
}

Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, const MoeDims& d, const MoeOptions& options) {
  const Value bias = options.biases ? w("ffn_gate_inp.bias", {d.n_experts}) : Value{};
  const Value logits = g.linear(x, w("ffn_gate_inp.weight", {d.n_experts, d.dim}), bias);  // [T, experts]
  return routed_experts(g, w, x, logits, d, options);
}

Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, Value logits, const MoeDims& d,
                     const MoeOptions& options) {
  const auto experts = [&](const std::string& name, int64_t n_out, int64_t n_in) {
    return GraphBuilder::ExpertWeights{
        .weight = w(name + ".weight", {d.n_experts, n_out, n_in}),
        .bias = options.biases ? w(name + ".bias", {d.n_experts, n_out}) : Value{},
        .scale = w.optional(name + ".scale", {d.n_experts}),
    };
  };
  const auto [ids, weights] = g.moe_route(logits, options.route);  // [T, used]
  Value gate, up;                                                  // [T, used, ff_dim]
  if (w.has("ffn_gate_up_exps.weight")) {
    const Value both = g.moe_linear(x, experts("ffn_gate_up_exps", 2 * d.ff_dim, d.dim), ids);
    gate = g.slice(both, 0, d.ff_dim);
    up = g.slice(both, d.ff_dim, d.ff_dim);
  } else {
    gate = g.moe_linear(x, experts("ffn_gate_exps", d.ff_dim, d.dim), ids);
    up = g.moe_linear(x, experts("ffn_up_exps", d.ff_dim, d.dim), ids);
  }
  const Value h = g.gated_act(options.act, gate, up);
  const Value out = g.moe_linear(h, experts("ffn_down_exps", d.dim, d.ff_dim), ids);  // [T, used, dim]
  return g.moe_combine(out, weights);
}

SharedExpertDims read_shared_expert_dims(const ModelConfig& c, Metadata& m, RouterNormalization weights) {
  SharedExpertDims d;
  d.route = {.n_used = m.count("expert_used_count"), .weights = weights};
  const auto ff_dim = [&](std::string_view key, int64_t share) {
    return m.has(key) ? m.count(key) : m.count("feed_forward_length") / share;
  };
  d.routed = {.dim = c.dim,
              .n_experts = m.count("expert_count"),
              .ff_dim = ff_dim("expert_feed_forward_length", d.route.n_used)};
  d.shared_ff_dim = ff_dim("expert_shared_feed_forward_length", 1);
  return d;
}

Value experts_with_shared(GraphBuilder& g, const LayerWeights& w, Value x, const SharedExpertDims& d) {
  const int64_t dim = d.routed.dim, ff_dim = d.shared_ff_dim;
  // The matmuls of x are adjacent, so that a backend can run them as one.
  const Value logits = g.linear(x, w("ffn_gate_inp.weight", {d.routed.n_experts, dim}));
  const Value weight = g.linear(x, w("ffn_gate_inp_shexp.weight", {1, dim}));  // [T, 1]
  const Value gate = g.linear(x, w("ffn_gate_shexp.weight", {ff_dim, dim}));
  const Value up = g.linear(x, w("ffn_up_shexp.weight", {ff_dim, dim}));
  const Value h = g.gated_act(Act::silu, gate, up);
  const Value routed = routed_experts(g, w, x, logits, d.routed, {.route = d.route});
  const Value shared = g.linear(h, w("ffn_down_shexp.weight", {dim, ff_dim}));
  return g.add(routed, g.gated_act(Act::sigmoid, weight, shared));
}

AttentionDims read_attention_dims(const ModelConfig& c, Metadata& m) {
  const int64_t heads = m.count("attention.head_count");
  return {.dim = c.dim,
          .heads = heads,
          .kv_heads = m.count_or("attention.head_count_kv", heads),
          .head_dim = m.count_or("attention.key_length", c.dim / heads)};
}

void build_decoder(GraphBuilder& g, const ModelConfig& c, float eps, const DecoderLayer& layer) {
  Value x = g.embed(g.weight("token_embd.weight", {c.vocab_size, c.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    x = g.add(x, layer.token_mixer(w, l, g.rms_norm(x, w("attn_norm.weight", {c.dim}), eps)));
    x = g.add(x, layer.ffn(w, l, g.rms_norm(x, w(layer.ffn_norm, {c.dim}), eps)));
    g.label(x, "l_out-" + std::to_string(l));
  }
  build_output_head(g, c, x, eps);
}

void build_output_head(GraphBuilder& g, const ModelConfig& c, Value x, float norm_eps, float softcap) {
  g.end_layers();
  x = g.rms_norm(x, g.weight("output_norm.weight", {c.dim}), norm_eps);  // [T, dim]
  g.label(x, "result_norm");
  g.hidden(x);
  Value logits = g.linear(g.rows(x), g.weight_or("output.weight", "token_embd.weight", {c.vocab_size, c.dim}));
  if (softcap > 0) logits = g.softcap(logits, softcap);
  g.logits(logits);  // [R, vocab]
}

}  // namespace zinc
