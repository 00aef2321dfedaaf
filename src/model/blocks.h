// Building blocks shared by several architectures. A block used by one architecture only is in that architecture's
// file.
#pragma once

#include <functional>
#include <string_view>

#include "graph/graph_builder.h"
#include "model/architecture.h"

namespace zinc {

// RoPE parameters from the keys rope.freq_base, rope.dimension_count and rope.scaling.*.
RopeParams read_rope(Metadata& metadata, RopePairs pairs, int64_t head_dim);
// The divisors of the RoPE frequencies: rope_freqs.weight if the file has it, or those of longrope.
struct RopeFactors {
  Value short_factors = {}, long_factors = {};  // the first: of every sequence, unless the RoPE is longrope
};
RopeFactors read_rope_factors(GraphBuilder& g, const RopeParams& rope);

// 1 / sqrt(head_dim), the usual scale of attention scores.
float default_attention_scale(int64_t head_dim);

// Whether a layer uses a sliding window if every `period`-th layer uses full attention; period 0: all slide.
bool is_sliding_layer(int layer, int64_t period);

// Grouped-query attention of one layer: q, k, v projections, q/k norms per head if qk_norm_eps > 0, RoPE, attention
// over the layer's own cache, output projection; biases if the file has them. x is already normalized.
struct AttentionDims {
  int64_t dim, heads, kv_heads, head_dim;
};
struct AttentionOptions {
  RopeParams rope;
  bool use_rope = true;
  RopeFactors rope_factors = {};
  float qk_norm_eps = 0;
  float scale = 1;
  int64_t window = 0;
  Value sinks = {};
};
Value attention_block(GraphBuilder& g, const LayerWeights& w, int layer, Value x, const AttentionDims& dims,
                      const AttentionOptions& options);

// down(act(gate x) * up x), with biases if the file has them.
Value gated_ffn(GraphBuilder& g, const LayerWeights& w, Value x, Act act, int64_t dim, int64_t ff_dim);

// The routed experts of a layer: ffn_gate_inp, ffn_{gate,up,down}_exps, or ffn_gate_up_exps if they are fused.
struct MoeDims {
  int64_t dim, n_experts, ff_dim;
};
struct MoeOptions {
  Act act = Act::silu;
  MoeRouteParams route;
  bool biases = false;  // router and experts have biases
};
Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, const MoeDims& dims, const MoeOptions& options);
// The same with router logits computed by the caller.
Value routed_experts(GraphBuilder& g, const LayerWeights& w, Value x, Value logits, const MoeDims& dims,
                     const MoeOptions& options);

// Routed experts and a shared expert, weighted by its own sigmoid gate.
struct SharedExpertDims {
  MoeDims routed;
  MoeRouteParams route;
  int64_t shared_ff_dim;
};
SharedExpertDims read_shared_expert_dims(const ModelConfig& config, Metadata& metadata, RouterNormalization weights);
Value experts_with_shared(GraphBuilder& g, const LayerWeights& w, Value x, const SharedExpertDims& dims);

// One head count and size for all layers: attention.head_count, head_count_kv, key_length.
AttentionDims read_attention_dims(const ModelConfig& config, Metadata& metadata);

// A whole decoder: token embedding, then per layer x += token_mixer(norm x); x += ffn(norm x), then the logits. The
// residual stream after layer i is labeled "l_out-<i>".
struct DecoderLayer {
  std::function<Value(const LayerWeights&, int layer, Value x)> token_mixer;
  std::function<Value(const LayerWeights&, int layer, Value x)> ffn;
  std::string_view ffn_norm = "ffn_norm.weight";
};
void build_decoder(GraphBuilder& g, const ModelConfig& config, float norm_eps, const DecoderLayer& layer);

// Final norm, gather of the output rows, LM head (or the tied embedding), softcap if > 0.
void build_output_head(GraphBuilder& g, const ModelConfig& c, Value x, float norm_eps, float softcap = 0);

}  // namespace zinc
