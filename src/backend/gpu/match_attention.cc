// Patterns of attention and of the gated delta rule.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

constexpr int kMaxHeadDim = 512;  // largest head_dim of attention in one kernel

// Heads that are slices of longer rows are read in place.
void strip_slice(const Matcher& m, AttentionInput& input) {
  constexpr int64_t kWide = 4;  // floats of a load
  const Node* slice = m.uses.producer(input.x);
  if (!is_op(slice, Op::slice) || !m.uses.only_reader(input.x)) return;
  if (slice->as<SliceParams>().begin % kWide != 0 || m.inner(slice->in[0]) % kWide != 0) return;
  input.slice = slice;
  input.x = slice->in[0];
}

AttentionInput input_of(const Matcher& m, Value v) {
  AttentionInput input{.x = v};
  if (!v) return input;
  if (const Node* rope = m.uses.producer(v); is_op(rope, Op::rope) && m.uses.only_reader(v)) {
    input.rope = rope;
    input.x = rope->in[0];
  }
  const Node* norm = m.uses.producer(input.x);
  if (is_rms_norm(norm) && m.uses.only_reader(input.x) && m.inner(norm->in[0]) == m.inner(v)) {
    input.norm = norm;
    input.x = norm->in[0];
  }
  if (input.norm || input.rope) strip_slice(m, input);
  return input;
}

AttentionInputs inputs_of(const Matcher& m, const Node& attention) {
  return {input_of(m, attention.in[0]), input_of(m, attention.in[1]), input_of(m, attention.in[2])};
}

void append_nodes(const AttentionInput& input, std::vector<const Node*>& nodes) {
  for (const Node* n : {input.slice, input.norm, input.rope}) {
    if (n) nodes.push_back(n);
  }
}

int64_t max_head_dim(const Matcher& m, const Node& attention) {
  return std::max(m.inner(attention.in[0]), attention.in[2] ? m.inner(attention.in[2]) : 0);
}

// The output gate: the only reader of attention's result, with the same width.
template <class Call>
void find_output_gate(const Matcher& m, Call& call) {
  const Value result = call.node->out[0];
  const Node* act = m.uses.only_reader(result);
  if (!is_op(act, Op::gated_act) || !m.uses.is_same(act->in[1], result)) return;
  const Value gate = act->in[0];
  if (m.width(gate) != m.width(act->out[0])) return;
  call.act = act;
  call.gate.x = gate;
  strip_slice(m, call.gate);
  const int64_t v_dim = m.width(gate) / m.shape(call.node->in[0])[0];
  if (call.gate.slice && m.inner(call.gate.slice->out[0]) != v_dim) call.gate = {.x = gate};
}

// The producer of the value that v slices at `begin`, if v has one reader; else nullptr.
const Node* sliced_from(const Matcher& m, Value v, int64_t begin) {
  const Node* slice = m.uses.producer(v);
  if (!is_op(slice, Op::slice) || !m.uses.only_reader(v) || slice->as<SliceParams>().begin != begin) return nullptr;
  return m.uses.producer(slice->in[0]);
}

}  // namespace

Match match_attention(const Matcher& m, const Node& attention) {
  if (m.keeps_values || max_head_dim(m, attention) > m.limits.max_warp_head_dim) return {};
  AttentionCall call{.node = &attention, .inputs = inputs_of(m, attention), .out = {attention.out[0]}};
  if (m.limits.has_gated_attention) find_output_gate(m, call);
  if (call.act) call.out.value = call.act->out[0];
  std::vector<const Node*> nodes = {&attention};
  for (const AttentionInput& input : *call.inputs) append_nodes(input, nodes);
  append_nodes(call.gate, nodes);
  if (call.act) nodes.push_back(call.act);
  const int at = m.uses.index_of(call.act ? *call.act : attention);
  return FusedCall{std::move(call), std::move(nodes), at};
}

Match match_attention_decode(const Matcher& m, const Node& attention) {
  if (m.keeps_values || max_head_dim(m, attention) > kMaxHeadDim) return {};
  AttentionDecodeCall call{.node = &attention, .inputs = inputs_of(m, attention)};
  find_output_gate(m, call);
  std::vector<const Node*> nodes = {&attention};
  for (const AttentionInput& input : call.inputs) append_nodes(input, nodes);
  append_nodes(call.gate, nodes);
  if (call.act) nodes.push_back(call.act);
  const int at = m.uses.index_of(call.act ? *call.act : attention);
  return FusedCall{std::move(call), std::move(nodes), at};
}

// q and k are L2 norms of heads; q, k and v are consecutive slices, and the only readers, of one convolution.
Match match_delta_decode(const Matcher& m, const Node& delta) {
  DeltaDecodeCall call{.delta = &delta, .q_norm = m.uses.producer(delta.in[0]), .k_norm = m.uses.producer(delta.in[1])};
  const auto is_head_norm = [&](const Node* norm, Value v) {
    return is_op(norm, Op::norm) && norm->as<NormParams>().kind == NormKind::l2 && !norm->in[1] &&
           m.uses.only_reader(v) == &delta && m.inner(norm->out[0]) == m.inner(v);
  };
  if (!is_head_norm(call.q_norm, delta.in[0]) || !is_head_norm(call.k_norm, delta.in[1])) return {};
  const int64_t key_dim = m.width(delta.in[1]);
  call.conv = sliced_from(m, call.q_norm->in[0], 0);
  if (!is_op(call.conv, Op::short_conv) || sliced_from(m, call.k_norm->in[0], key_dim) != call.conv ||
      sliced_from(m, delta.in[2], 2 * key_dim) != call.conv || m.uses.readers(call.conv->out[0]).size() != 3 ||
      call.q_norm->as<NormParams>().eps != call.k_norm->as<NormParams>().eps) {
    return {};
  }
  std::vector<const Node*> nodes = m.uses.readers(call.conv->out[0]);
  nodes.insert(nodes.end(), {call.conv, call.q_norm, call.k_norm, &delta});
  return FusedCall{call, std::move(nodes), m.uses.index_of(delta)};
}

Match match_delta_layer(const Matcher& m, const Node& delta) {
  Match rule = match_delta_decode(m, delta);
  if (!rule) return {};
  DeltaLayerCall call{.rule = std::get<DeltaDecodeCall>(rule->kind),
                      .out = {delta.out[0]},
                      .stores_qkv = m.max_tokens() >= kDeltaChunk};
  const Node* norm = m.uses.only_reader(delta.out[0]);
  const Node* gate = is_rms_norm(norm) ? m.uses.only_reader(norm->out[0]) : nullptr;
  if (is_op(gate, Op::gated_act) && find_gated_head_norm(m, *gate) == norm && m.is_free(norm)) {
    call.norm = norm;
    call.gate = gate;
    call.out = {gate->out[0]};
    rule->nodes.insert(rule->nodes.end(), {norm, gate});
    rule->at = m.uses.index_of(*gate);
  }
  return FusedCall{std::move(call), std::move(rule->nodes), rule->at};
}

}  // namespace zinc::gpu
