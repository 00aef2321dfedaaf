// Qwen3-Next: gated DeltaNet layers, every fourth one gated attention, routed experts and a shared expert. Value heads
// that use the same key head are adjacent, and files pack some of their inputs per key head.
#include "model/hybrid_blocks.h"

namespace zinc {
namespace {

// Per key head: the betas of its value heads, then their alphas.
void split_gates(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d, DeltaNetProjections& out) {
  const int64_t group = d.v_heads / d.k_heads;
  const Value packed = g.heads(g.linear(x, w("ssm_ba.weight", {2 * d.v_heads, d.dim})), d.k_heads);
  out.beta = g.flatten(g.slice(packed, 0, group));
  out.alpha = g.flatten(g.slice(packed, group, group));
}

// Files of early converters have one matrix ssm_in. Per key head: query, key, its value heads, their z.
void split_ssm_in(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d, DeltaNetProjections& out) {
  const int64_t group_dim = d.v_heads / d.k_heads * d.state_dim;
  const int64_t all = 2 * d.key_dim() + 2 * d.value_dim();
  const Value packed = g.heads(g.linear(x, w("ssm_in.weight", {all, d.dim})), d.k_heads);
  const Value q = g.flatten(g.slice(packed, 0, d.state_dim));  // [T, key_dim]
  const Value k = g.flatten(g.slice(packed, d.state_dim, d.state_dim));
  const Value v = g.flatten(g.slice(packed, 2 * d.state_dim, group_dim));  // [T, value_dim]
  out.qkv = g.concat(g.concat(q, k), v);
  out.z = g.flatten(g.slice(packed, 2 * d.state_dim + group_dim, group_dim));
}

DeltaNetProjections projections(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& d) {
  DeltaNetProjections out;
  if (w.has("ssm_in.weight") && !w.has("attn_qkv.weight")) {
    split_ssm_in(g, w, x, d, out);
  } else {
    out.qkv = g.linear(x, w("attn_qkv.weight", {d.qkv_dim(), d.dim}));
    out.z = g.linear(x, w("attn_gate.weight", {d.value_dim(), d.dim}));
  }
  split_gates(g, w, x, d, out);
  return out;
}

HybridFamily describe(const HybridDims& d, const SharedExpertDims& experts, GraphBuilder& g) {
  return {.sharing = HeadSharing::grouped,
          .projections = [&](const LayerWeights& w, Value x) { return projections(g, w, x, d); },
          .ffn = [&](const LayerWeights& w, Value x) { return experts_with_shared(g, w, x, experts); }};
}

void build(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouterNormalization::softmax_normalized);
  build_hybrid(g, c, dims, describe(dims, experts, g));
}

void build_draft(const ModelConfig& c, Metadata& m, GraphBuilder& g) {
  const HybridDims dims = read_hybrid_dims(c, m);
  const SharedExpertDims experts = read_shared_expert_dims(c, m, RouterNormalization::softmax_normalized);
  build_mtp_block(g, c, dims, describe(dims, experts, g));
}

}  // namespace

extern const Architecture k_architecture_qwen3next = {
    .gguf_name = "qwen3next", .build = build, .build_draft = build_draft, .has_draft = has_mtp_block};

}  // namespace zinc
