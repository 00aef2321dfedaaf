// Patterns of the weighted sum of experts.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

// An add that no linear runs as its epilogue.
bool is_free_sum(const Matcher& m, const Node* add, Value result) {
  if (!is_op(add, Op::add) || !m.is_free(add)) return false;
  const Value other = other_operand(m, *add, result);
  const Node* producer = m.uses.producer(other);
  return !is_op(producer, Op::linear) || m.uses.only_reader(other) != add;
}

// The gated_act of a shared expert, which only `add` reads, beside the sum of the routed ones; nullptr: none.
const Node* find_shared_act(const Matcher& m, const Node& add, Value routed) {
  const Value other = other_operand(m, add, routed);
  const Node* act = m.uses.producer(other);
  const bool is_shared = is_op(act, Op::gated_act) && m.uses.only_reader(other) == &add &&
                         act->as<GatedActParams>().act == Act::sigmoid && m.width(act->in[0]) == 1;
  return is_shared && m.is_free(act) ? act : nullptr;
}

// The shared expert, if its down matrix has the format and shape of the routed ones: `add` adds it to their sum.
void find_shared_expert(const Matcher& m, const Node& add, MoeDownCall& call) {
  const Node* act = find_shared_act(m, add, call.combine->out[0]);
  const Node* shared = act ? m.uses.producer(act->in[1]) : nullptr;
  if (!is_op(shared, Op::linear) || shared->in[2] || m.uses.only_reader(act->in[1]) != act) return;
  const DeviceMatrix &a = m.matrix(*call.down), &b = m.matrix(*shared);
  if (a.format != b.format || a.n_in != b.n_in || a.n_out != b.n_out) return;
  call.shared = shared;
  call.shared_act = act;
  call.shared_add = &add;
}

void find_adds(const Matcher& m, MoeDownCall& call) {
  Value result = call.combine->out[0];
  const Node* add = m.uses.only_reader(result);
  if (!is_free_sum(m, add, result)) return;
  find_shared_expert(m, *add, call);
  if (call.shared) {
    result = add->out[0];
    add = m.uses.only_reader(result);
    if (!is_free_sum(m, add, result)) return;
  }
  call.add = add;
  call.addend = other_operand(m, *add, result);
}

// The add that is the only reader of a value, if no other call has it.
const Node* find_free_add(const Matcher& m, Value v) {
  const Node* add = m.uses.only_reader(v);
  return is_op(add, Op::add) && m.is_free(add) && !m.uses.is_same(add->in[0], add->in[1]) ? add : nullptr;
}

}  // namespace

Match match_moe_down(const Matcher& m, const Node& combine) {
  const Node* down = m.uses.producer(combine.in[0]);
  if (!is_op(down, Op::moe_linear) || m.uses.only_reader(down->out[0]) != &combine) return {};
  const int64_t n_used = m.width(down->in[2]);
  const int64_t row = (m.matrix(*down).n_in + kSegmentElems - 1) / kSegmentElems * kSegmentElems;
  if (!m.is_q8(*down) || n_used > m.limits.max_experts_used || (n_used + 1) * row > m.limits.max_moe_down_elems ||
      m.shape(down->in[0]).n_dims() == 1) {
    return {};
  }
  MoeDownCall call{.down = down, .combine = &combine};
  find_adds(m, call);
  std::vector<const Node*> nodes;
  for (const Node* n : {call.down, call.combine, call.shared, call.shared_act, call.shared_add, call.add}) {
    if (n) nodes.push_back(n);
  }
  const int at = m.uses.index_of(*nodes.back());
  return FusedCall{std::move(call), std::move(nodes), at};
}

Match match_combine(const Matcher& m, const Node& combine) {
  CombineCall call{.node = &combine};
  const bool fits = m.width(combine.out[0]) <= m.limits.max_combine_elems;
  const Node* add = find_free_add(m, call.out());
  if (const Node* act = add && fits ? find_shared_act(m, *add, call.out()) : nullptr) {
    call.shared_act = act;
    call.shared_add = add;
    add = find_free_add(m, call.out());
  }
  if (add) {
    call.addend = other_operand(m, *add, call.out());
    call.add = add;
  }
  if (add && fits) call.norm = find_next_norm(m, call.out());
  if (call.norm) call.normed = {call.norm->out[0]};
  std::vector<const Node*> nodes;
  for (const Node* n : {call.node, call.shared_act, call.shared_add, call.add, call.norm}) {
    if (n) nodes.push_back(n);
  }
  const int at = m.uses.index_of(*nodes.back());
  return FusedCall{std::move(call), std::move(nodes), at};
}

}  // namespace zinc::gpu
