// Gemma 4: dense, with per-layer embeddings, or with routed experts in parallel to the dense FFN. Sliding and full
// layers differ in head size, RoPE and key heads; the last layers may read the KV cache of earlier ones. The assistant,
// a separate MTP file, has the same layers without keys and values: it reads the cache of the model that it drafts for.
#include <cmath>

#include "model/blocks.h"

namespace zinc {
namespace {

struct LayerDims {
  bool sliding;
  int64_t heads, head_dim, ff_dim;
  RopeParams rope;
  int64_t window;
  int64_t kv_heads = 0;  // 0: the layer has no keys and values of its own
  int kv_layer = -1;     // whose KV cache is read
};

struct Dims {
  float eps;
  int64_t per_layer_dim = 0;  // width of a layer's own token embedding, 0: none
  MoeDims experts;
  MoeOptions moe;
  std::vector<LayerDims> layers;
};

// Layers that share a KV cache read the last layer of their own kind that writes one: of the two layers before the
// first sharing one, one is sliding and one is full.
int kv_layer_of(int layer, int n_writing, bool sliding) {
  return layer < n_writing ? layer : n_writing - (sliding ? 2 : 1);
}

// Without kv_heads and kv_layer.
std::vector<LayerDims> read_layers(const ModelConfig& c, Metadata& m) {
  const std::vector<int64_t> heads = m.per_layer("attention.head_count", c.n_layers);
  const std::vector<int64_t> ff_dims = m.per_layer("feed_forward_length", c.n_layers);
  const std::vector<int64_t> sliding = m.per_layer("attention.sliding_window_pattern", c.n_layers);
  const int64_t full_dim = m.count("attention.key_length"), sliding_dim = m.count("attention.key_length_swa");
  RopeParams full_rope = read_rope(m, RopePairs::halves, full_dim);
  RopeParams sliding_rope = full_rope;
  sliding_rope.theta = m.real_or("rope.freq_base_swa", 10000.0f);
  sliding_rope.n_dims = m.count_or("rope.dimension_count_swa", sliding_dim);
  sliding_rope.position_scale = sliding_rope.amplitude = 1;
  sliding_rope.extension = {};
  const int64_t window = m.count("attention.sliding_window");
  std::vector<LayerDims> layers;
  for (int l = 0; l < c.n_layers; ++l) {
    const size_t i = static_cast<size_t>(l);
    const bool is_sliding = sliding[i] != 0;
    layers.push_back({.sliding = is_sliding,
                      .heads = heads[i],
                      .head_dim = is_sliding ? sliding_dim : full_dim,
                      .ff_dim = ff_dims[i],
                      .rope = is_sliding ? sliding_rope : full_rope,
                      .window = is_sliding ? window : 0});
  }
  return layers;
}

void read_kv_layers(const ModelConfig& c, Metadata& m, std::vector<LayerDims>& layers) {
  const std::vector<int64_t> kv_heads = m.per_layer("attention.head_count_kv", c.n_layers);
  const int64_t n_shared = m.count_or("attention.shared_kv_layers", 0);
  if (n_shared > 0 && n_shared > c.n_layers - 2) {
    m.fail_with(fail(ErrorCode::invalid_input, "{}: {} layers share a KV cache, but at least 2 of {} must write one",
                     m.file().name(), n_shared, c.n_layers));
    return;
  }
  const int n_writing = c.n_layers - static_cast<int>(n_shared);
  for (int l = 0; l < c.n_layers; ++l) {
    LayerDims& layer = layers[static_cast<size_t>(l)];
    layer.kv_layer = kv_layer_of(l, n_writing, layer.sliding);
    if (l < n_writing) layer.kv_heads = kv_heads[static_cast<size_t>(l)];
  }
}

Dims read_dims(const ModelConfig& c, Metadata& m) {
  Dims d;
  d.eps = m.real("attention.layer_norm_rms_epsilon");
  d.per_layer_dim = m.count_or("embedding_length_per_layer_input", 0);
  d.experts = {c.dim, m.count_or("expert_count", 0), m.count_or("expert_feed_forward_length", 0)};
  d.moe = {.act = Act::gelu, .route = {.n_used = m.count_or("expert_used_count", 0)}};
  d.layers = read_layers(c, m);
  read_kv_layers(c, m, d.layers);
  return d;
}

// Scores are not scaled: the q and k norms do that. A layer without a value matrix uses its keys, normalized without a
// weight.
Value attention(GraphBuilder& g, const LayerWeights& w, Value x, int64_t dim, const LayerDims& d, float eps) {
  const int64_t q_dim = d.heads * d.head_dim, kv_dim = d.kv_heads * d.head_dim;
  const Value factors = d.sliding ? Value{} : g.weight("rope_freqs.weight", {d.rope.n_dims / 2});
  // Matmuls first: backends fuse those with the same input as long as none of their results is read.
  Value q = g.heads(g.linear(x, w("attn_q.weight", {q_dim, dim})), d.heads);  // [T, heads, head_dim]
  Value k, v;
  if (d.kv_heads > 0) {
    const Value keys = g.heads(g.linear(x, w("attn_k.weight", {kv_dim, dim})), d.kv_heads);
    v = w.has("attn_v.weight") ? g.heads(g.linear(x, w("attn_v.weight", {kv_dim, dim})), d.kv_heads) : keys;
    v = g.rms_norm(v, {}, eps);
    k = g.rope(g.rms_norm(keys, w("attn_k_norm.weight", {d.head_dim}), eps), d.rope, factors);
  }
  q = g.rope(g.rms_norm(q, w("attn_q_norm.weight", {d.head_dim}), eps), d.rope, factors);
  const Value a = g.attention({q, k, v}, {.cache_layer = d.kv_layer, .scale = 1, .window = d.window});  // [T, q_dim]
  return g.linear(a, w("attn_output.weight", {dim, q_dim}));
}

// The dense FFN, plus the experts if the layer has them. The router's input is the residual stream with its own norm
// and scale.
Value ffn(GraphBuilder& g, const LayerWeights& w, Value x, int64_t dim, int64_t ff_dim, const Dims& dims) {
  const bool has_experts = w.has("ffn_gate_inp.weight");
  Value route;
  if (has_experts) {
    route = g.scale(g.rms_norm(x, {}, dims.eps), 1 / std::sqrt(static_cast<float>(dim)));
    route = g.mul(route, w("ffn_gate_inp.scale", {dim}));
  }
  const Value dense = gated_ffn(g, w, g.rms_norm(x, w("ffn_norm.weight", {dim}), dims.eps), Act::gelu, dim, ff_dim);
  if (!has_experts) return dense;
  const Value logits = g.linear(route, w("ffn_gate_inp.weight", {dims.experts.n_experts, dim}));  // [T, experts]
  const Value h = g.rms_norm(x, w("pre_ffw_norm_2.weight", {dim}), dims.eps);
  const Value routed = routed_experts(g, w, h, logits, dims.experts, dims.moe);
  return g.add(g.rms_norm(dense, w("post_ffw_norm_1.weight", {dim}), dims.eps),
               g.rms_norm(routed, w("post_ffw_norm_2.weight", {dim}), dims.eps));
}

// Each layer's own input: its slice of a second token embedding, added to a projection of the first. [T, layers, n].
Value per_layer_inputs(GraphBuilder& g, const ModelConfig& c, Value x, const Dims& d) {
  const int64_t n = d.per_layer_dim, all = n * c.n_layers;
  const Value own =
      g.scale(g.embed(g.weight("per_layer_token_embd.weight", {c.vocab_size, all})), std::sqrt(static_cast<float>(n)));
  Value projected = g.linear(x, g.weight("per_layer_model_proj.weight", {all, c.dim}));
  projected = g.heads(g.scale(projected, 1 / std::sqrt(static_cast<float>(c.dim))), c.n_layers);
  projected = g.rms_norm(projected, g.weight("per_layer_proj_norm.weight", {n}), d.eps);
  return g.scale(g.add(projected, g.heads(own, c.n_layers)), 1 / std::sqrt(2.0f));
}

Value add_per_layer_input(GraphBuilder& g, const LayerWeights& w, Value x, Value input, int64_t dim, const Dims& d) {
  const Value gate = g.linear(x, w("inp_gate.weight", {d.per_layer_dim, dim}));  // [T, n]
  const Value h = g.linear(g.gated_act(Act::gelu, gate, input), w("proj.weight", {dim, d.per_layer_dim}));
  return g.add(x, g.rms_norm(h, w("post_norm.weight", {dim}), d.eps));
}

// One layer without its scale.
Value decoder_layer(GraphBuilder& g, const LayerWeights& w, Value x, int64_t dim, const LayerDims& layer,
                    const Dims& d) {
  Value h = attention(g, w, g.rms_norm(x, w("attn_norm.weight", {dim}), d.eps), dim, layer, d.eps);
  x = g.add(x, g.rms_norm(h, w("post_attention_norm.weight", {dim}), d.eps));
  h = ffn(g, w, x, dim, layer.ff_dim, d);
  return g.add(x, g.rms_norm(h, w("post_ffw_norm.weight", {dim}), d.eps));
}

Value scale_output(GraphBuilder& g, const LayerWeights& w, Value x) {
  return w.has("layer_output_scale.weight") ? g.mul(x, w("layer_output_scale.weight", {1})) : x;
}

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const Dims d = read_dims(c, m);
  if (!m.status().ok()) return;
  const Value table = g.weight("token_embd.weight", {c.vocab_size, c.dim});
  Value x = g.scale(g.embed(table), std::sqrt(static_cast<float>(c.dim)));  // [T, dim]
  const Value inputs = d.per_layer_dim > 0 ? g.flatten(per_layer_inputs(g, c, x, d)) : Value{};
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    x = decoder_layer(g, w, x, c.dim, d.layers[static_cast<size_t>(l)], d);
    if (inputs) x = add_per_layer_input(g, w, x, g.slice(inputs, l * d.per_layer_dim, d.per_layer_dim), c.dim, d);
    x = scale_output(g, w, x);
    g.label(x, "l_out-" + std::to_string(l));
  }
  build_output_head(g, c, x, d.eps, m.real_or("final_logit_softcapping", 0));
}

// ---- the assistant ----

// Every layer reads the cache of the target's last layer with the same window.
Dims read_assistant_dims(const ModelConfig& c, const ModelConfig& target, Metadata& m, const GraphBuilder& g) {
  Dims d;
  const auto reject = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    m.fail_with(
        fail(ErrorCode::unsupported, "{}: {}", m.file().name(), fmt::format(text, std::forward<Args>(args)...)));
  };
  d.eps = m.real("attention.layer_norm_rms_epsilon");
  d.layers = read_layers(c, m);
  const int64_t target_dim = m.count("embedding_length_out");
  if (!m.status().ok()) return d;
  if (target_dim != target.dim) {
    reject("it drafts for a model of width {}, but this one has {}; use the MTP file that was published for this model",
           target_dim, target.dim);
  }
  if (const int64_t n = m.count_or("nextn_predict_layers", c.n_layers); n != c.n_layers) {
    reject("metadata '{}' is {}, but all {} layers draft", m.full_key("nextn_predict_layers"), n, c.n_layers);
  }
  for (LayerDims& layer : d.layers) {
    layer.kv_layer = g.target_cache_layer(layer.window);
    if (layer.kv_layer >= 0) continue;
    const std::string kind = layer.sliding ? fmt::format("a window of {}", layer.window) : "full attention";
    reject("a layer has {}, but none of the model's layers has", kind);
  }
  return d;
}

// The output head is computed in full: files have no centroids, with which E2B and E4B could skip most of it.
void build_assistant(const ModelConfig& c, const ModelConfig& target, Metadata& m, GraphBuilder& g) {
  const Dims d = read_assistant_dims(c, target, m, g);
  if (!m.status().ok()) return;
  const float factor = std::sqrt(static_cast<float>(target.dim));
  const Value token = g.scale(g.embed(g.target_weight("token_embd.weight")), factor);  // [T, target.dim]
  const Value both = g.concat(token, g.hidden_in(target.dim));
  Value x = g.linear(both, g.weight("nextn.pre_projection.weight", {c.dim, 2 * target.dim}));  // [T, dim]
  for (int l = 0; l < c.n_layers; ++l) {
    const LayerWeights w = g.layer(l);
    x = scale_output(g, w, decoder_layer(g, w, x, c.dim, d.layers[static_cast<size_t>(l)], d));
  }
  g.end_layers();
  x = g.rms_norm(x, g.weight("output_norm.weight", {c.dim}), d.eps);
  g.hidden(g.linear(x, g.weight("nextn.post_projection.weight", {target.dim, c.dim})));  // [T, target.dim]
  g.logits(g.linear(g.rows(x), g.weight("token_embd.weight", {c.vocab_size, c.dim})));   // [R, vocab]
}

constexpr MtpFileArchitecture kAssistant = {.gguf_name = "gemma4-assistant", .build = build_assistant};

}  // namespace

extern const Architecture k_architecture_gemma4 = {.gguf_name = "gemma4", .build = build, .mtp_file = &kAssistant};

}  // namespace zinc
