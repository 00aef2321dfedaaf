// Decides which nodes of a graph run as one kernel, for one class of step sizes. The table of fused kernels is in
// kernel_table.cc: a row has an op to start from, a predicate on the step and the device, and a pattern. The rows are
// tried in order, each one on all nodes that are not yet part of a call; the first match takes its nodes. Passes over
// the calls then fuse what depends on other calls, and choose where activations are quantized. Needs no device.
#pragma once

#include <functional>
#include <limits>

#include "backend/gpu/fused_call.h"
#include "backend/gpu/graph_uses.h"
#include "backend/gpu/step_class.h"
#include "backend/gpu/weights.h"
#include "graph/memory_plan.h"

namespace zinc::gpu {

// What the kernels of a backend can do on a device. "Decode" means a step of one row (batch 1).
struct KernelLimits {
  // Attention.
  int max_warp_head_dim;             // largest head_dim whose norm, RoPE and KV write are fused at all step sizes
  bool has_gated_attention = false;  // the output gate is fused at all step sizes too
  std::function<bool(const Node& attention)> quantizes_attention = {};  // attention can quantize its result
  // Matmuls.
  size_t max_matmul_parts;               // matrices of one input that run together
  size_t max_launch_parts;               // of them in one launch, if they have one format
  bool has_decode_kernels = true;        // steps of one row run the kernels for decode
  bool has_mixed_gemv = false;           // gemv: a launch can have matrices of several formats, and split-K parts
  int max_gemv_rows = 1;                 // steps of up to this many rows run gemv kernels too
  int max_gemv_row_segments = 0;         // if rows times the K segments of an output are at most these,
  int64_t max_normed_elems = 0;          // with a norm as prologue if rows times their length are at most these
  bool has_output_row_prologue = false;  // matmuls of a single row have row prologues in larger steps too
  bool has_q8_norm_prologue = false;     // matmuls that quantize their input can norm it too
  int64_t max_prologue_elems = std::numeric_limits<int64_t>::max();  // row length for a norm or gate in a prologue
  int gate_up_row_multiple = 0;  // decode: a packed gate_up matrix is split at multiples of this; 0: never
  // A matmul of this many rows can run the gated activation of gate and up as epilogue; empty: always.
  std::function<bool(const PanelFormat&, bool has_experts, int64_t n_rows)> has_gated_epilogue = {};
  bool pairs_gated_acts = false;  // larger steps: two gated activations can run as one kernel
  // Quantized activations.
  int max_inline_q8_rows;  // a matmul quantizes up to this many rows of its input itself
  int max_inline_q8_elems = std::numeric_limits<int>::max();  // of this length
  bool producers_always_quantize = false;                     // also if the matmul could
  // Experts.
  int64_t max_experts_used, max_experts;  // top-k per token; experts per layer that one kernel can route
  int64_t max_moe_down_elems = std::numeric_limits<int64_t>::max();  // inputs of all down projections of a token
  // Row length for moe_combine with the gated shared expert, the residual add and the next norm; 0: without these.
  int64_t max_combine_elems = 0;
  bool can_join_router = false;  // a gate's gemv can run a later router too
  // Recurrent layers.
  bool has_delta_layers = false;  // steps of several rows: gated delta rule layers from convolution to gated norm
  // Norms.
  int64_t max_residual_elems = 0;     // row length for norm + residual add in one kernel; 0: no such kernel
  bool norms_after_residual = false;  // larger steps: it takes the norm before the next matmuls too
};

// The calls of a step, in the order in which they run.
std::vector<FusedCall> fuse(const Graph& graph, const GraphUses& uses, const Weights& weights,
                            const KernelLimits& limits, const StepClass& sizes, bool keeps_values);

// Inputs of nodes that run later than their place in the graph.
void append_extended_uses(const Graph& graph, const GraphUses& graph_uses, std::span<const FusedCall> calls,
                          std::vector<ExtendedUse>& uses);

}  // namespace zinc::gpu
