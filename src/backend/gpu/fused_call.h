// The kernels of a step as plain data, the same for every GPU backend: kernel_table.h makes them from a graph, a
// backend lowers each one to its launch. A kind has typed parameters; a null node or a none value means that the kernel
// runs without that part. Nodes and values are those of the graph, which must outlive the calls.
#pragma once

#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "backend/gpu/params/limits.h"
#include "graph/graph.h"

namespace zinc::gpu {

using namespace kernel;

// A value as q8 matmuls read it: rows of n_in elements quantized to 8 bits, one scale per `block` elements.
struct QuantizedActivation {
  int32_t storage_root = 0;
  int block = 0, n_in = 0;
  bool operator==(const QuantizedActivation&) const = default;
};

// The result of a kernel that can quantize: floats, q8 or both.
struct Output {
  Value value;
  std::optional<QuantizedActivation> q8 = {};
  bool has_floats = true;
};

// ---- one op ----

struct EmbedCall {
  const Node* node;
};
// slice, concat (two copies), rows and hidden_in.
struct RowCopy {
  Value from;  // none: the hidden states passed with the step
  Value to;
  bool gathers_output_rows = false;
  int vectors_per_row = 1, from_width = 0, from_begin = 0, to_width = 0, to_begin = 0, length = 0;
};
struct CopyCall {
  std::vector<RowCopy> copies;
};
struct NormCall {
  const Node* node;
  int width, vectors_per_row;  // of the rows that are normed
  Output out;
};
struct QuantizeCall {
  Value x;
  QuantizedActivation to;
};
struct RopeCall {
  const Node* node;
};
struct GatedActCall {
  const Node* node;
  int width, vectors_per_row;  // of the rows that matmuls read
  Output out;
};
struct GatedActPairCall {
  std::array<GatedActCall, 2> acts;
};
struct ElementwiseCall {
  const Node* node;
  Elementwise op;
};
struct RouteCall {
  const Node* node;
};
// The weighted sum of experts. Epilogues, in this order: the gated shared expert is added, the residual is, the sum is
// normed.
struct CombineCall {
  const Node* node;
  const Node *shared_act = nullptr, *shared_add = nullptr;
  const Node* add = nullptr;  // of `addend`
  Value addend = {};
  const Node* norm = nullptr;  // of out(), into `normed`
  Output normed = {};
  Value out() const { return (add ? add : shared_add ? shared_add : node)->out[0]; }
};
struct ShortConvCall {
  const Node* node;
};
struct DeltaNetCall {
  const Node* node;
};
struct SampleCall {
  const Node* node;
};

// ---- attention ----

// The chain of nodes from x (a matmul's result) to q, k or v.
struct AttentionInput {
  Value x;  // none: attention has no such input
  const Node *slice = nullptr, *norm = nullptr, *rope = nullptr;
};
using AttentionInputs = std::array<AttentionInput, 3>;  // q, k, v

struct AttentionCall {
  const Node* node;
  std::optional<AttentionInputs> inputs;  // norm and RoPE of the heads with the KV cache write; none: only the write
  const Node* act = nullptr;              // the output gate
  AttentionInput gate = {};               // of act: x and slice
  Output out;
};

// Decode: norms, RoPE, KV cache write, attention and output gate in one kernel.
struct AttentionDecodeCall {
  const Node* node;
  AttentionInputs inputs;
  const Node* act = nullptr;  // the output gate
  AttentionInput gate = {};   // of act: x and slice
  Value out() const { return act ? act->out[0] : node->out[0]; }
};

// ---- norms before the residual add ----

// add(residual, norm(x)) or add(residual, outer(norm(x0) + norm(x1))), optionally times a scalar `mul`. Optional
// further outputs: norm of the first one, times a scalar and a vector; the next norm of the first one.
struct NormResidualCall {
  std::array<const Node*, 2> norms = {};
  const Node *sum = nullptr, *outer = nullptr, *add = nullptr, *mul = nullptr;
  const Node *second_norm = nullptr, *second_norm_scale = nullptr, *second_norm_mul = nullptr;
  const Node* next_norm = nullptr;
  Output normed = {};   // of next_norm
  Value residual = {};  // the other operand of `add`
  Value out() const { return mul ? mul->out[0] : add->out[0]; }
  std::vector<const Node*> nodes() const;  // in graph order
};

// ---- matmuls ----

struct MatmulPart {
  const Node* node;  // linear or moe_linear
  // The reader adds up the partial sums of the K segments: a moe_route inside the experts' kernel, or moe_down.
  enum class Reader : uint8_t { any, router, shared_expert_gate };
  Reader reader = Reader::any;
  bool is_split_k() const { return reader != Reader::any; }
};

// Linears, or expert linears, of one input.
struct MatmulCall {
  std::vector<MatmulPart> parts = {};
  // Input. Prologues: an RMS norm of the row; a norm over heads and a gate (RMSNormGated); the residual add before the
  // norm, which also stores the sum for later readers.
  Value x = {};                                // as the kernel reads it
  std::optional<QuantizedActivation> q8 = {};  // x is read quantized
  const Node *norm = nullptr, *gate = nullptr;
  std::optional<NormResidualCall> residual = {};
  // Epilogue: the gated_act of parts 0 (gate) and 1 (up), or of the two halves of part 0; or the add of `addend`.
  const Node *act = nullptr, *add = nullptr;
  bool is_packed_gate_up = false;
  Value addend = {};
  // Decode: the kernel of one row that takes matrices of several formats. Not for experts that read one row each.
  bool is_gemv = false;
  const Node* route = nullptr;  // experts: the moe_route that the kernel computes itself
  Value split_k_x = {};         // the last part is a later layer's router with this input row
  // Part of routing: with dependent launches (CUDA) the next kernel may start only when this one's inputs are complete.
  bool launches_dependents_late = false;

  const Node& first() const { return *parts[0].node; }
  bool has_experts() const { return first().op == Op::moe_linear; }
};

// Decode: the experts' down projections, their weighted sum, the shared expert and the residual add.
struct MoeDownCall {
  const Node *down = nullptr, *combine = nullptr;
  const Node *shared = nullptr, *shared_act = nullptr, *shared_add = nullptr;
  const Node* add = nullptr;
  Value addend = {};
  std::optional<QuantizedActivation> q8 = {};  // of down's input
  bool has_partial_gate = false;               // the shared expert's gate is a split-K part
  Value out() const { return (add ? add : shared_add ? shared_add : combine)->out[0]; }
};

// Decode: a gated delta rule layer from its convolution on.
struct DeltaDecodeCall {
  const Node *delta = nullptr, *conv = nullptr, *q_norm = nullptr, *k_norm = nullptr;
};

// Steps of several rows: a gated delta rule layer from its convolution to its gated norm.
struct DeltaLayerCall {
  DeltaDecodeCall rule;
  const Node *norm = nullptr, *gate = nullptr;  // RMSNormGated of the heads
  Output out;
  bool stores_qkv = false;  // q, k and v need memory: the step can have tokens for a chunked scan

  // The node reads intermediate results from memory, not from registers.
  bool reads_memory(const Node& n) const { return &n == norm || (stores_qkv && &n == rule.delta); }
};

using KernelKind =
    std::variant<EmbedCall, CopyCall, NormCall, QuantizeCall, RopeCall, GatedActCall, GatedActPairCall, ElementwiseCall,
                 RouteCall, CombineCall, ShortConvCall, DeltaNetCall, SampleCall, AttentionCall, AttentionDecodeCall,
                 NormResidualCall, MatmulCall, MoeDownCall, DeltaDecodeCall, DeltaLayerCall>;

struct FusedCall {
  KernelKind kind;
  std::vector<const Node*> nodes;  // that it computes; their inputs must stay alive until it runs
  int at = 0;                      // index of the node in whose place it runs: the last one, except for a joined router
};

}  // namespace zinc::gpu
