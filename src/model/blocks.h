// Pieces that several architectures share. A piece only one architecture uses lives in that architecture's file.
#pragma once

#include <functional>
#include <string_view>

#include "graph/graph_builder.h"
#include "model/architecture.h"

namespace zinc {

// Rotation as the keys rope.freq_base, rope.dimension_count and rope.scaling.* describe it.
RopeParams read_rope(Metadata& metadata, RopePairs pairs, int64_t head_dim);

// 1 / sqrt(head_dim): what attention scores are multiplied by unless a family says otherwise.
float default_attention_scale(int64_t head_dim);

// Whether a layer slides where every `period`-th layer does not; period 0: all slide.
bool is_window_layer(int layer, int64_t period);

// Grouped attention of one layer: q, k, v projections, norms on each head where eps_qk > 0, rotation, attention over
// the layer's own cache, output projection; biases where the file has them. x is already normalised.
struct AttentionDims {
  int64_t dim, heads, kv_heads, head_dim;
};
struct AttentionOptions {
  RopeParams rope;
  bool rotate = true;
  Value freq_factors = {};
  float eps_qk = 0;
  float scale = 1;
  int64_t window = 0;
  Value sinks = {};
};
Value attention_block(GraphBuilder& g, const LayerWeights& w, int layer, Value x, const AttentionDims& dims,
                      const AttentionOptions& options);

// down(act(gate x) * up x), biases where the file has them.
Value gated_ffn(GraphBuilder& g, const LayerWeights& w, Value x, Act act, int64_t dim, int64_t ff_dim);

// The routed experts of a layer: ffn_gate_inp, ffn_{gate,up,down}_exps, or ffn_gate_up_exps where they are fused.
struct MoeDims {
  int64_t dim, n_experts, ff_dim;
};
struct MoeOptions {
  Act act = Act::silu;
  MoeRouteParams route;
  bool biases = false;  // router and experts carry biases
};
Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, const MoeDims& dims, const MoeOptions& options);
// The same with router logits made by the caller.
Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, Value logits, const MoeDims& dims,
                     const MoeOptions& options);

// Routed experts and one expert for every token, weighed by its own gate.
struct SharedExpertDims {
  MoeDims routed;
  MoeRouteParams route;
  int64_t shared_ff_dim;
};
SharedExpertDims read_shared_expert_dims(const ModelConfig& config, Metadata& metadata, RouteWeights weights);
Value experts_with_shared(GraphBuilder& g, const LayerWeights& w, Value x, const SharedExpertDims& dims);

// One head count and size for all layers: attention.head_count, head_count_kv, key_length.
AttentionDims read_attention_dims(const ModelConfig& config, Metadata& metadata);

// The whole of a plain decoder: token embedding, then per layer x += mix(norm x); x += feed(norm x), then the logits.
// The residual stream after layer i is labelled "l_out-<i>".
struct DecoderLayer {
  std::function<Value(const LayerWeights&, int layer, Value x)> mix;
  std::function<Value(const LayerWeights&, int layer, Value x)> feed;
  std::string_view feed_norm = "ffn_norm.weight";
};
void build_decoder(GraphBuilder& g, const ModelConfig& config, float norm_eps, const DecoderLayer& layer);

// Final norm, rows to sample, output matrix (or the token table where there is none), softcap if > 0.
void finish_with_logits(GraphBuilder& g, const ModelConfig& c, Value x, float norm_eps, float softcap = 0);

}  // namespace zinc
