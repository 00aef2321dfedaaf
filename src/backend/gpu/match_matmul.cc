// Patterns of matmuls: siblings of one input, with prologue, epilogue and routing.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

bool are_siblings(const Matcher& m, const Node& a, const Node& b) {
  if (a.op != b.op || !m.uses.is_same(a.in[0], b.in[0])) return false;
  if (a.op == Op::moe_linear && a.in[2] != b.in[2]) return false;
  return m.matrix(a).n_in == m.matrix(b).n_in && m.shape(a.in[0]).n_dims() == m.shape(b.in[0]).n_dims();
}

// The first matmul and later ones of the same input, until the first result is read.
std::vector<const Node*> siblings_of(const Matcher& m, const Node& first) {
  std::vector<const Node*> group = {&first};
  if (m.keeps_values) return group;
  int end = m.first_read(first.out[0]);
  for (int i = m.uses.index_of(first) + 1; i < end && group.size() < m.limits.max_matmul_parts; ++i) {
    const Node& n = m.nodes()[static_cast<size_t>(i)];
    if (!is_matmul(n) || !m.is_free(&n) || !are_siblings(m, first, n)) continue;
    group.push_back(&n);
    end = std::min(end, m.first_read(n.out[0]));
  }
  return group;
}

// ---- epilogues ----

// The gated_act that is the only reader of gate and up; nullptr: none.
const Node* gated_act_of(const Matcher& m, const Node& gate, const Node& up) {
  const Node* act = m.uses.only_reader(gate.out[0]);
  if (!is_op(act, Op::gated_act) || m.uses.only_reader(up.out[0]) != act) return nullptr;
  const bool is_in_order = m.uses.is_same(act->in[0], gate.out[0]) && m.uses.is_same(act->in[1], up.out[0]);
  const bool is_same_shape = m.matrix(gate).format == m.matrix(up).format && m.matrix(gate).n_out == m.matrix(up).n_out;
  return is_in_order && is_same_shape ? act : nullptr;
}

// Steps of few rows. n_matrices: of an output.
bool fits_gemv(const Matcher& m, const Node& matmul, int n_matrices) {
  const DeviceMatrix& matrix = m.matrix(matmul);
  if (!m.has_few_rows || !m.limits.has_mixed_gemv || !m.is_q8(matmul)) return false;
  if (matmul.op == Op::moe_linear) {
    return m.shape(matmul.in[0]).n_dims() == 1 && m.width(matmul.in[2]) <= m.limits.max_experts_used;
  }
  return m.width(matmul.in[0]) == matrix.n_in &&
         int64_t{m.max_rows(matmul.in[0])} * matrix.n_segments * n_matrices <= m.limits.max_gemv_row_segments;
}

// The matmul is the gate or up of a gated activation.
bool is_gate_or_up(const Matcher& m, const Node& matmul) {
  const Node* act = m.uses.only_reader(matmul.out[0]);
  if (!is_op(act, Op::gated_act)) return false;
  const Node *gate = m.uses.producer(act->in[0]), *up = m.uses.producer(act->in[1]);
  return gate && up && is_matmul(*gate) && is_matmul(*up) && are_siblings(m, *gate, *up) &&
         gated_act_of(m, *gate, *up) != nullptr;
}

// A float matmul that becomes a split-K part (mark_split_k_parts): a router, or the gate of a shared expert.
bool becomes_split_k(const Matcher& m, const Node& matmul);

// Gate and up become the first parts. Only if no result is read before the activation.
const Node* find_gate_and_up(const Matcher& m, std::vector<const Node*>& group) {
  int first_use = static_cast<int>(m.nodes().size());
  for (const Node* n : group) first_use = std::min(first_use, m.first_read(n->out[0]));
  for (const Node* gate : group) {
    for (const Node* up : group) {
      const Node* act = gate == up ? nullptr : gated_act_of(m, *gate, *up);
      if (!act || m.uses.index_of(*act) != first_use) continue;
      std::erase_if(group, [&](const Node* n) { return n == gate || n == up; });
      group.insert(group.begin(), {gate, up});
      return act;
    }
  }
  return nullptr;
}

// The add that reads the only matrix's result.
const Node* find_add(const Matcher& m, const std::vector<const Node*>& group) {
  const Node* add = m.uses.only_reader(group[0]->out[0]);
  if (!is_op(add, Op::add) || !m.is_free(add) || group.size() != 1 || group[0]->op != Op::linear) return nullptr;
  return m.uses.is_same(add->in[0], add->in[1]) ? nullptr : add;
}

// gemv: the gated_act that is the only reader of the two slices (gate, up) of a matmul's row.
const Node* find_act_of_halves(const Matcher& m, const Node& matmul) {
  std::vector<const Node*> slices = m.uses.readers(matmul.out[0]);
  const int64_t half = m.inner(matmul.out[0]) / 2;
  if (slices.size() != 2 || m.uses.is_host_read(matmul.out[0]) || half % m.limits.gate_up_row_multiple != 0 ||
      !is_op(slices[0], Op::slice) || !is_op(slices[1], Op::slice)) {
    return nullptr;
  }
  if (slices[0]->as<SliceParams>().begin > 0) std::swap(slices[0], slices[1]);
  for (int i : {0, 1}) {
    const Node& slice = *slices[static_cast<size_t>(i)];
    if (slice.as<SliceParams>().begin != i * half || m.inner(slice.out[0]) != half) return nullptr;
  }
  const Node* act = m.uses.only_reader(slices[0]->out[0]);
  const bool is_gated = is_op(act, Op::gated_act) && m.is_free(act) && m.uses.only_reader(slices[1]->out[0]) == act &&
                        m.uses.is_same(act->in[0], slices[0]->out[0]) && m.uses.is_same(act->in[1], slices[1]->out[0]);
  return is_gated ? act : nullptr;
}

// gemv: gate and up packed in one matrix without bias.
const Node* find_packed_gate_up(const Matcher& m, const Node& n) {
  const bool is_expert = n.op == Op::moe_linear;
  if (!m.is_decode && !fits_gemv(m, n, 2)) return nullptr;
  const bool is_row = is_expert ? m.shape(n.in[0]).n_dims() == 1 && m.width(n.in[2]) <= m.limits.max_experts_used
                                : m.width(n.in[0]) == m.matrix(n).n_in;
  if (m.limits.gate_up_row_multiple == 0 || !is_row || n.in[is_expert ? 3 : 2]) return nullptr;
  const Node* act = find_act_of_halves(m, n);
  if (!act || !is_expert) return act;
  // The launch of the experts may itself write their ids, so no earlier node may read them.
  const int at = m.uses.index_of(*act);
  const bool is_first =
      std::ranges::all_of(m.uses.readers(n.in[2]), [&](const Node* r) { return r == &n || m.position(*r) > at; });
  return is_first ? act : nullptr;
}

// ---- prologues ----

// The row is a residual sum whose kernel norms it too.
bool is_normed_with_residual(const Matcher& m, const Node& norm) {
  const Node* add = m.uses.producer(norm.in[0]);
  if (is_op(add, Op::mul)) add = m.uses.producer(add->in[0]);
  return is_op(add, Op::add) &&
         std::ranges::any_of(add->in, [&](Value v) { return v && is_rms_norm(m.uses.producer(v)); });
}

// Decode: the norm over heads of a gated norm, whose only reader is the matmul.
const Node* find_gated_norm(const Matcher& m, const Node& matmul, const Node& act) {
  if (m.uses.only_reader(act.out[0]) != &matmul || matmul.op != Op::linear) return nullptr;
  const int64_t width = m.width(act.out[0]);
  const bool fits = m.matrix(matmul).n_in == width && width <= m.limits.max_prologue_elems;
  return fits ? find_gated_head_norm(m, act) : nullptr;
}

// In decode the only row is the output row: matmuls read the row that `rows` would copy.
const Node* find_skipped_rows(const Matcher& m, Value x) {
  const Node* rows = m.uses.producer(x);
  if (!is_op(rows, Op::rows) || m.uses.is_host_read(x)) return nullptr;
  const bool has_only_matmuls = std::ranges::all_of(m.uses.readers(x), [](const Node* r) { return is_matmul(*r); });
  return has_only_matmuls ? rows : nullptr;
}

void find_prologue(const Matcher& m, MatmulCall& call, std::vector<const Node*>& nodes) {
  if (const Node* rows = m.is_decode ? find_skipped_rows(m, call.x) : nullptr) {
    nodes.push_back(rows);
    call.x = rows->in[0];
  }
  const Node* producer = m.uses.producer(call.x);
  if (m.is_decode && is_op(producer, Op::gated_act)) {
    call.norm = find_gated_norm(m, call.first(), *producer);
    call.gate = call.norm ? producer : nullptr;
  } else if (is_prologue_norm(m, producer)) {
    call.norm = producer;
  }
  if (call.gate) nodes.push_back(call.gate);
  if (!call.norm) return;
  nodes.push_back(call.norm);
  call.x = call.norm->in[0];
}

// ---- routing ----

// There is memory for the logits of one router: earlier routed experts must be combined before.
bool is_router_memory_free(const Matcher& m, const Node& router) {
  for (const FusedCall& call : m.calls()) {
    const MatmulCall* experts = std::get_if<MatmulCall>(&call.kind);
    if (!experts || !experts->route) continue;
    for (const Node* sum : m.uses.readers(experts->route->out[1])) {
      if (m.position(*sum) > m.position(router)) return false;
    }
  }
  return true;
}

// The same before experts are matched, for norms that become prologues: no other route's logits are in use between the
// router and the last sum of its experts.
bool has_router_memory(const Matcher& m, const Node& route) {
  const auto first = [&](const Node& r) { return m.uses.index_of(*m.uses.producer(r.in[0])); };
  const auto last = [&](const Node& r) {
    int at = m.uses.index_of(r);
    for (const Node* sum : m.uses.readers(r.out[1])) at = std::max(at, m.uses.index_of(*sum));
    return at;
  };
  return std::ranges::none_of(m.nodes(), [&](const Node& other) {
    return other.op == Op::moe_route && &other != &route && first(other) <= last(route) && first(route) <= last(other);
  });
}

// gemv: the moe_route that the first reader of its ids computes itself. The logits are those of a float matrix that
// only the moe_route reads; only moe_combine nodes read the weights, and they may compute them again.
const Node* find_route(const Matcher& m, const Node& first) {
  if (!m.has_few_rows || first.op != Op::moe_linear || m.shape(first.in[0]).n_dims() != 1) return nullptr;
  if (!m.is_decode && !runs_gemv(m, first)) return nullptr;
  const Node* route = m.uses.producer(first.in[2]);
  if (!is_op(route, Op::moe_route) || m.uses.readers(route->out[0]).front() != &first ||
      route->as<MoeRouteParams>().n_used > m.limits.max_experts_used) {
    return nullptr;
  }
  const Node* router = m.uses.producer(route->in[0]);
  if (!is_op(router, Op::linear) || m.uses.only_reader(route->in[0]) != route || m.is_q8(*router)) return nullptr;
  const DeviceMatrix& matrix = m.matrix(*router);
  if (matrix.n_out > m.limits.max_experts || matrix.n_in != m.width(router->in[0])) return nullptr;
  if (!fits_split_k(m, *router)) return nullptr;
  const bool has_only_sums =
      std::ranges::all_of(m.uses.readers(route->out[1]), [](const Node* r) { return r->op == Op::moe_combine; });
  const bool has_memory = m.is_decode ? is_router_memory_free(m, *router) : has_router_memory(m, *route);
  return has_only_sums && has_memory ? route : nullptr;
}

bool becomes_split_k(const Matcher& m, const Node& matmul) {
  const Node* reader = m.uses.only_reader(matmul.out[0]);
  if (is_op(reader, Op::moe_route)) {
    const std::vector<const Node*>& experts = m.uses.readers(reader->out[0]);
    return !experts.empty() && find_route(m, *experts.front()) == reader;
  }
  const FusedCall* call = m.call_of(reader);
  const MoeDownCall* moe = call ? std::get_if<MoeDownCall>(&call->kind) : nullptr;
  return moe && is_shared_expert_gate(m, *moe, matmul);
}

}  // namespace

bool runs_gemv(const Matcher& m, const Node& matmul) {
  if (!m.is_decode) return fits_gemv(m, matmul, is_gate_or_up(m, matmul) ? 2 : 1);
  if (!m.limits.has_mixed_gemv) return false;
  if (matmul.op == Op::linear) return m.width(matmul.in[0]) == m.matrix(matmul).n_in;
  return m.shape(matmul.in[0]).n_dims() == 1 && m.width(matmul.in[2]) <= m.limits.max_experts_used;
}

bool fits_split_k(const Matcher& m, const Node& matmul) {
  return m.is_decode || int64_t{m.max_rows(matmul.in[0])} * m.matrix(matmul).n_in <= m.limits.max_normed_elems;
}

bool is_shared_expert_gate(const Matcher& m, const MoeDownCall& call, const Node& matmul) {
  return call.shared && m.uses.producer(call.shared_act->in[0]) == &matmul && matmul.op == Op::linear &&
         !matmul.in[2] && !m.is_q8(matmul) && m.uses.only_reader(call.shared_act->in[0]) == call.shared_act &&
         fits_split_k(m, matmul);
}

const Node* find_gated_head_norm(const Matcher& m, const Node& act) {
  const Node* norm = m.uses.producer(act.in[1]);
  if (!is_rms_norm(norm) || m.uses.only_reader(norm->out[0]) != &act || !m.is_free(&act)) return nullptr;
  const int64_t width = m.width(act.out[0]), dim = m.inner(norm->out[0]);
  const bool divides = dim >= 8 && dim <= kSegmentElems && (dim & (dim - 1)) == 0 && width % dim == 0;
  return divides && m.width(act.in[0]) == width ? norm : nullptr;
}

bool is_row_prologue_norm(const Matcher& m, const Node* norm) {
  if (!is_rms_norm(norm) || m.uses.is_host_read(norm->out[0])) return false;
  const Value out = norm->out[0];
  const int64_t width = m.inner(out);
  const auto reads_rows = [&](const Node* r) {
    return is_matmul(*r) && m.matrix(*r).n_in == width && m.uses.is_same(r->in[0], out);
  };
  return width == m.width(out) && width <= m.limits.max_prologue_elems &&
         std::ranges::all_of(m.uses.readers(out), reads_rows);
}

bool is_prologue_norm(const Matcher& m, const Node* norm) {
  if (!is_rms_norm(norm) || m.uses.is_host_read(norm->out[0])) return false;
  const Value out = norm->out[0];
  const int64_t width = m.inner(out);
  const bool is_row = m.max_rows(out) == 1 && (m.is_decode || m.limits.has_output_row_prologue);
  if (is_row) return is_row_prologue_norm(m, norm);
  if (m.has_few_rows && m.max_rows(out) * width <= m.limits.max_normed_elems && is_row_prologue_norm(m, norm)) {
    const auto is_gemv = [&](const Node* r) { return runs_gemv(m, *r) || becomes_split_k(m, *r); };
    return !is_normed_with_residual(m, *norm) && std::ranges::all_of(m.uses.readers(out), is_gemv);
  }
  const auto reads_q8_rows = [&](const Node* r) {
    return is_matmul(*r) && m.matrix(*r).n_in == width && m.uses.is_same(r->in[0], out) && m.is_q8(*r);
  };
  return m.limits.has_q8_norm_prologue && m.max_rows(out) * (m.width(out) / width) <= m.limits.max_inline_q8_rows &&
         std::ranges::all_of(m.uses.readers(out), reads_q8_rows);
}

Match match_matmuls(const Matcher& m, const Node& first) {
  std::vector<const Node*> nodes = siblings_of(m, first);
  MatmulCall call{.x = first.in[0]};
  int at = m.uses.index_of(*nodes.back());
  call.act = find_gate_and_up(m, nodes);
  if (!call.act) call.add = find_add(m, nodes);
  for (const Node* n : nodes) call.parts.push_back({n});
  find_prologue(m, call, nodes);
  if (m.has_few_rows && !call.act && !call.add && !call.gate && call.parts.size() == 1) {
    call.act = find_packed_gate_up(m, first);
    call.is_packed_gate_up = call.act != nullptr;
    if (call.act) nodes.insert(nodes.end(), {m.uses.producer(call.act->in[0]), m.uses.producer(call.act->in[1])});
  }
  if (const Node* epilogue = call.act ? call.act : call.add) {
    nodes.push_back(epilogue);
    at = m.uses.index_of(*epilogue);
  }
  if (call.add) call.addend = other_operand(m, *call.add, first.out[0]);
  call.route = find_route(m, first);
  if (call.route) nodes.push_back(call.route);
  return FusedCall{std::move(call), std::move(nodes), at};
}

}  // namespace zinc::gpu
