// What a pattern of the kernel table sees: the graph with its uses, the weights, the step, and which nodes are already
// part of a call.
#pragma once

#include <algorithm>
#include <utility>

#include "backend/gpu/kernel_table.h"

namespace zinc::gpu {

inline bool is_matmul(const Node& n) { return n.op == Op::linear || n.op == Op::moe_linear; }
inline bool is_op(const Node* n, Op op) { return n && n->op == op; }
inline bool is_rms_norm(const Node* n) { return is_op(n, Op::norm) && n->as<NormParams>().kind == NormKind::rms; }

class Matcher {
 public:
  Matcher(const Graph& graph, const GraphUses& uses, const Weights& weights, const KernelLimits& limits,
          const StepClass& sizes, bool keeps_values)
      : graph(graph),
        uses(uses),
        limits(limits),
        keeps_values(keeps_values),
        is_decode(sizes.max_tokens == 1 && limits.has_decode_kernels),
        has_few_rows(is_decode ||
                     (sizes.max_tokens <= limits.max_gemv_rows && limits.has_decode_kernels && !keeps_values)),
        weights_(weights),
        sizes_(sizes),
        call_of_(graph.nodes().size()) {}

  const Graph& graph;
  const GraphUses& uses;
  const KernelLimits& limits;
  const bool keeps_values;
  const bool is_decode;
  const bool has_few_rows;  // decode, or a step of a few rows that runs gemv kernels

  std::span<const Node> nodes() const { return graph.nodes(); }
  const Shape& shape(Value v) const { return graph.info(v).shape; }
  int64_t width(Value v) const { return shape(v).elems(); }
  int64_t inner(Value v) const { return shape(v).inner(); }
  int max_rows(Value v) const { return graph.info(v).rows == Rows::outputs ? sizes_.max_outputs : sizes_.max_tokens; }
  int max_tokens() const { return sizes_.max_tokens; }
  const DeviceMatrix& matrix(const Node& matmul) const { return *weights_.matrix(graph.info(matmul.in[1]).name); }
  bool is_q8(const Node& matmul) const { return matrix(matmul).format->q8_block > 0; }

  void add(FusedCall call);
  bool is_free(const Node* n) const { return n && !call_of_[index(*n)]; }
  const FusedCall* call_of(const Node* n) const;  // nullptr: none
  FusedCall* call_of(const Node* n) { return const_cast<FusedCall*>(std::as_const(*this).call_of(n)); }
  void move_nodes(FusedCall& from, FusedCall& to);  // `from` has no kernel of its own any more
  // Index of the node in whose place n runs.
  int position(const Node& n) const;
  int first_read(Value v) const;  // the position of its first reader; after the graph if there is none
  std::vector<FusedCall>& calls() { return calls_; }
  const std::vector<FusedCall>& calls() const { return calls_; }

 private:
  size_t index(const Node& n) const { return static_cast<size_t>(uses.index_of(n)); }

  const Weights& weights_;
  StepClass sizes_;
  std::vector<FusedCall> calls_;
  std::vector<std::optional<size_t>> call_of_;  // per node: index in calls_
};

// Whether a gemv kernel can run the matmul, alone or with its siblings; of gate and up, with the activation.
bool runs_gemv(const Matcher& m, const Node& matmul);
// Whether it can run the matmul as a split-K part.
bool fits_split_k(const Matcher& m, const Node& matmul);
// A float matmul whose result only gates the shared expert of `call`.
bool is_shared_expert_gate(const Matcher& m, const MoeDownCall& call, const Node& matmul);

// The operand of an add that is not `result`.
Value other_operand(const Matcher& m, const Node& add, Value result);
// The matmuls of its result run it in their prologue.
bool is_prologue_norm(const Matcher& m, const Node* norm);
// A norm of a whole row whose readers are all matmuls; in decode it is their prologue.
bool is_row_prologue_norm(const Matcher& m, const Node* norm);

// The norm over heads that `act` gates (RMSNormGated), if nothing else reads it and the head size divides a segment.
const Node* find_gated_head_norm(const Matcher& m, const Node& act);
// The RMS norm of a row that no other reader of it, but `ignored`, runs before; nullptr: none.
const Node* find_next_norm(const Matcher& m, Value row, const Node* ignored = nullptr);

// The patterns; they return what the call has to be, or nothing.
using Match = std::optional<FusedCall>;
Match match_attention(const Matcher& m, const Node& attention);
Match match_attention_decode(const Matcher& m, const Node& attention);
Match match_moe_down(const Matcher& m, const Node& combine);
Match match_matmuls(const Matcher& m, const Node& first);
Match match_combine(const Matcher& m, const Node& combine);
Match match_delta_decode(const Matcher& m, const Node& delta);
Match match_delta_layer(const Matcher& m, const Node& delta);
Match match_norm_residual(const Matcher& m, const Node& add);
Match match_one_op(const Matcher& m, const Node& node);

// Passes over the calls, which are in the order in which they run.
void fuse_residuals_into_matmuls(Matcher& m);
void mark_split_k_parts(Matcher& m);
std::vector<FusedCall> split_launches(const Matcher& m);
void join_routers(const Matcher& m, std::vector<FusedCall>& calls);
std::vector<FusedCall> place_quantization(const Matcher& m, std::vector<FusedCall> calls);
void pair_gated_acts(const Matcher& m, std::vector<FusedCall>& calls);

}  // namespace zinc::gpu
