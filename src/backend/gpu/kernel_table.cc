#include "backend/gpu/kernel_table.h"

#include <array>

#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

struct Row {
  Op op;  // that the pattern starts from
  bool (*fits)(const Matcher& m);
  Match (*match)(const Matcher& m, const Node& start);
};

bool always(const Matcher&) { return true; }
bool in_decode(const Matcher& m) { return m.is_decode; }
bool has_few_rows(const Matcher& m) { return m.has_few_rows; }
bool can_add_after_combine(const Matcher& m) { return m.limits.max_combine_elems > 0; }
bool has_delta_layers(const Matcher& m) { return !m.is_decode && m.limits.has_delta_layers; }
bool has_norm_residual(const Matcher& m) { return m.limits.max_residual_elems > 0; }

// In order of priority. A new fused kernel is a row here, a kind in fused_call.h and its lowering in each backend.
constexpr std::array<Row, 9> kTable = {{
    {Op::attention, in_decode, match_attention_decode},       // with norms, RoPE and output gate
    {Op::attention, always, match_attention},                 // with norms and RoPE
    {Op::moe_combine, has_few_rows, match_moe_down},          // down projections, weighted sum, residual
    {Op::linear, always, match_matmuls},                      // of one input
    {Op::moe_linear, always, match_matmuls},                  // of one input
    {Op::moe_combine, can_add_after_combine, match_combine},  // weighted sum, shared expert, residual, norm
    {Op::delta_net, in_decode, match_delta_decode},           // with convolution
    {Op::delta_net, has_delta_layers, match_delta_layer},     // with convolution and gated norm
    {Op::add, has_norm_residual, match_norm_residual},        // norms and residual
}};

void match_table(Matcher& m) {
  for (const Row& row : kTable) {
    if (!row.fits(m)) continue;
    for (const Node& node : m.nodes()) {
      if (node.op != row.op || !m.is_free(&node)) continue;
      if (Match match = row.match(m, node)) m.add(std::move(*match));
    }
  }
  for (const Node& node : m.nodes()) {
    if (!m.is_free(&node)) continue;
    if (Match match = match_one_op(m, node)) m.add(std::move(*match));
  }
}

bool keeps_intermediates_in_registers(const FusedCall& call) {
  return std::holds_alternative<AttentionCall>(call.kind) || std::holds_alternative<AttentionDecodeCall>(call.kind) ||
         std::holds_alternative<DeltaDecodeCall>(call.kind) || std::holds_alternative<DeltaLayerCall>(call.kind) ||
         std::holds_alternative<CombineCall>(call.kind);
}

}  // namespace

void Matcher::add(FusedCall call) {
  for (const Node* n : call.nodes) {
    if (!call_of_[index(*n)]) call_of_[index(*n)] = calls_.size();
  }
  calls_.push_back(std::move(call));
}

const FusedCall* Matcher::call_of(const Node* n) const {
  return !n || is_free(n) ? nullptr : &calls_[*call_of_[index(*n)]];
}

void Matcher::move_nodes(FusedCall& from, FusedCall& to) {
  for (const Node* n : from.nodes) call_of_[index(*n)] = static_cast<size_t>(&to - calls_.data());
  to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
  from.nodes.clear();
}

int Matcher::position(const Node& n) const {
  const FusedCall* call = call_of(&n);
  return call ? call->at : uses.index_of(n);
}

int Matcher::first_read(Value v) const {
  int first = static_cast<int>(nodes().size());
  for (const Node* reader : uses.readers(v)) first = std::min(first, position(*reader));
  return first;
}

Value other_operand(const Matcher& m, const Node& add, Value result) {
  return add.in[m.uses.is_same(add.in[0], result) ? 1 : 0];
}

std::vector<FusedCall> fuse(const Graph& graph, const GraphUses& uses, const Weights& weights,
                            const KernelLimits& limits, const StepClass& sizes, bool keeps_values) {
  Matcher m(graph, uses, weights, limits, sizes, keeps_values);
  match_table(m);
  if (m.is_decode) fuse_residuals_into_matmuls(m);
  if (m.has_few_rows && limits.has_mixed_gemv) mark_split_k_parts(m);
  std::vector<FusedCall> calls = split_launches(m);
  if (m.is_decode && limits.can_join_router) join_routers(m, calls);
  calls = place_quantization(m, std::move(calls));
  if (!m.is_decode && limits.pairs_gated_acts) pair_gated_acts(m, calls);
  return calls;
}

void append_extended_uses(const Graph& graph, const GraphUses& graph_uses, std::span<const FusedCall> calls,
                          std::vector<ExtendedUse>& uses) {
  for (const FusedCall& call : calls) {
    const DeltaLayerCall* layer = std::get_if<DeltaLayerCall>(&call.kind);
    if (const AttentionCall* attention = std::get_if<AttentionCall>(&call.kind)) {
      uses.push_back({attention->node->in[0], call.at});  // prepared queries are in memory
    }
    const auto is_internal = [&](const Node& n, Value v) {
      const Node* producer = graph_uses.producer(v);
      if (layer && layer->reads_memory(n)) return false;
      return keeps_intermediates_in_registers(call) && std::ranges::find(call.nodes, producer) != call.nodes.end();
    };
    for (const Node* n : call.nodes) {
      for (Value v : n->in) {
        if (v && !graph.info(v).is_weight() && !is_internal(*n, v)) uses.push_back({v, call.at});
      }
    }
  }
}

}  // namespace zinc::gpu
