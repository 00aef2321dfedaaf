// Passes over the calls of a step.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

MatmulCall* as_matmul(FusedCall& call) { return std::get_if<MatmulCall>(&call.kind); }

// The matmuls that can run a residual add as prologue: the only readers of the next norm, in one call, and the first
// readers of the sum.
FusedCall* find_matmuls_after(Matcher& m, const NormResidualCall& residual) {
  if (residual.outer || residual.second_norm) return nullptr;
  const std::vector<const Node*>& readers = m.uses.readers(residual.out());
  for (const Node* norm : readers) {
    if (!is_row_prologue_norm(m, norm) || m.uses.readers(norm->out[0]).empty()) continue;
    const std::vector<const Node*>& matmuls = m.uses.readers(norm->out[0]);
    FusedCall* call = m.call_of(matmuls.front());
    const MatmulCall* matmul = as_matmul(*call);
    if (!matmul || matmul->is_packed_gate_up || matmul->has_experts() || matmul->norm != norm) continue;
    const bool is_one_call = std::ranges::all_of(matmuls, [&](const Node* n) { return m.call_of(n) == call; });
    const bool is_first =
        std::ranges::all_of(readers, [&](const Node* r) { return r == norm || m.position(*r) > call->at; });
    if (is_one_call && is_first) return call;
  }
  return nullptr;
}

MatmulPart* find_part(Matcher& m, const Node* node) {
  FusedCall* call = m.call_of(node);
  MatmulCall* matmul = call ? as_matmul(*call) : nullptr;
  if (!matmul) return nullptr;
  const auto part = std::ranges::find(matmul->parts, node, &MatmulPart::node);
  return part == matmul->parts.end() ? nullptr : &*part;
}

// ---- launches ----

bool is_gemv(const Matcher& m, const MatmulPart& part) { return part.is_split_k() || runs_gemv(m, *part.node); }

// The next launch takes these parts of `rest`: gate and up, then in a gemv the split-K parts too; without them all
// parts that fit, or those of one format.
std::vector<MatmulPart> take_parts(const Matcher& m, const MatmulCall& call, bool has_gate,
                                   std::vector<MatmulPart>& rest) {
  const size_t n_gate_parts = !has_gate ? 0 : call.is_packed_gate_up ? 1 : 2;
  std::vector<MatmulPart> taken;
  std::vector<MatmulPart> left;
  for (const MatmulPart& part : rest) {
    const bool is_gate = taken.size() < n_gate_parts;
    bool fits = taken.empty() || is_gate;
    const bool in_gemv = !taken.empty() && is_gemv(m, taken[0]);
    if (!fits && in_gemv) fits = is_gemv(m, part) && !call.has_experts() && (!has_gate || part.is_split_k());
    if (!fits && !in_gemv && !has_gate && !is_gemv(m, part)) {
      fits = m.matrix(*part.node).format == m.matrix(*taken[0].node).format && taken.size() < m.limits.max_launch_parts;
    }
    (fits ? taken : left).push_back(part);
  }
  rest = std::move(left);
  return taken;
}

bool runs_gated_epilogue(const Matcher& m, const MatmulCall& call) {
  const DeviceMatrix& matrix = m.matrix(call.first());
  const int64_t n_vectors = call.has_experts() ? 1 : m.width(call.first().in[0]) / matrix.n_in;
  const int64_t n_rows = m.max_rows(call.first().in[0]) * n_vectors;
  return !m.limits.has_gated_epilogue || m.limits.has_gated_epilogue(*matrix.format, call.has_experts(), n_rows);
}

// The nodes of a call without those that only its other launches compute.
std::vector<const Node*> nodes_of_launch(const FusedCall& call, const MatmulCall& launch) {
  const MatmulCall& all = std::get<MatmulCall>(call.kind);
  std::vector<const Node*> elsewhere;
  if (all.residual && !launch.residual) elsewhere = all.residual->nodes();
  if (!launch.act) elsewhere.push_back(all.act);
  if (!launch.route) elsewhere.push_back(all.route);
  std::vector<const Node*> nodes = call.nodes;
  std::erase_if(nodes, [&](const Node* n) {
    if (is_matmul(*n)) return std::ranges::find(launch.parts, n, &MatmulPart::node) == launch.parts.end();
    return std::ranges::find(elsewhere, n) != elsewhere.end();
  });
  return nodes;
}

void append_launches(const Matcher& m, const FusedCall& call, std::vector<FusedCall>& to) {
  MatmulCall matmul = std::get<MatmulCall>(call.kind);
  std::vector<MatmulPart> rest = matmul.parts;
  for (bool is_first = true; !rest.empty(); is_first = false) {
    MatmulCall launch = matmul;
    launch.parts = take_parts(m, matmul, is_first && matmul.act, rest);
    launch.is_gemv = is_gemv(m, launch.parts[0]);
    ZINC_CHECK(m.is_decode || !m.has_few_rows || !launch.norm || launch.is_gemv);
    if (!is_first) {
      launch.act = launch.route = nullptr;
      launch.residual.reset();
    }
    const auto is_router = [](const MatmulPart& part) { return part.reader == MatmulPart::Reader::router; };
    launch.launches_dependents_late = launch.route || std::ranges::any_of(launch.parts, is_router);
    const Node* act = launch.act && !launch.is_gemv && !runs_gated_epilogue(m, launch) ? launch.act : nullptr;
    if (act) launch.act = nullptr;
    std::vector<const Node*> nodes = nodes_of_launch(call, launch);
    to.push_back({std::move(launch), std::move(nodes), call.at});
    if (act) to.push_back(*match_one_op(m, *act));
  }
}

// ---- routers ----

bool is_router(const FusedCall& call) {
  const MatmulCall* matmul = std::get_if<MatmulCall>(&call.kind);
  return matmul && matmul->parts.size() == 1 && matmul->parts[0].reader == MatmulPart::Reader::router;
}

bool is_of_experts(const FusedCall& call) {
  const MatmulCall* matmul = std::get_if<MatmulCall>(&call.kind);
  return (matmul && matmul->has_experts()) || std::holds_alternative<MoeDownCall>(call.kind) ||
         std::holds_alternative<RouteCall>(call.kind);
}

// Every gemv block stores its part of a residual sum; split-K blocks do not, so the sum would be incomplete.
bool can_take_router(const MatmulCall* gate) {
  return gate && gate->act && !gate->has_experts() && !gate->residual &&
         std::ranges::none_of(gate->parts, &MatmulPart::is_split_k);
}

// A later router of the same width whose input, a residual sum with its own norm, is already there. No experts may lie
// between: the router logits share one buffer.
std::optional<size_t> find_joinable_router(const Matcher& m, std::span<const FusedCall> calls, size_t gate) {
  for (size_t i = gate + 1; i < calls.size(); ++i) {
    if (is_of_experts(calls[i])) return {};
    if (!is_router(calls[i])) continue;
    const MatmulCall& router = std::get<MatmulCall>(calls[i].kind);
    const Node* producer = m.uses.producer(router.x);
    const auto is_residual_sum = [&](const FusedCall& call) {
      const MatmulCall* matmul = std::get_if<MatmulCall>(&call.kind);
      const bool adds = std::holds_alternative<NormResidualCall>(call.kind) || (matmul && matmul->residual);
      return adds && std::ranges::find(call.nodes, producer) != call.nodes.end();
    };
    const bool is_ready = !router.norm && std::ranges::any_of(calls.first(gate), is_residual_sum);
    const Node& first = std::get<MatmulCall>(calls[gate].kind).first();
    return is_ready && m.matrix(router.first()).n_in == m.matrix(first).n_in ? std::optional(i) : std::nullopt;
  }
  return {};
}

// ---- gated activations ----

bool reads(const Matcher& m, const FusedCall& call, Value v) {
  if (const QuantizeCall* quantize = std::get_if<QuantizeCall>(&call.kind)) return m.uses.is_same(quantize->x, v);
  const auto is_read = [&](Value in) { return in && m.uses.is_same(in, v); };
  return std::ranges::any_of(call.nodes, [&](const Node* n) { return std::ranges::any_of(n->in, is_read); });
}

// The next gated activation, if the first one's result is not read before it: they can run together in its place.
std::optional<size_t> find_later_gated_act(const Matcher& m, std::span<const FusedCall> calls, size_t first) {
  const Value result = std::get<GatedActCall>(calls[first].kind).out.value;
  for (size_t i = first + 1; i < calls.size() && !reads(m, calls[i], result); ++i) {
    if (std::holds_alternative<GatedActCall>(calls[i].kind)) return i;
  }
  return {};
}

}  // namespace

void fuse_residuals_into_matmuls(Matcher& m) {
  for (FusedCall& call : m.calls()) {
    const NormResidualCall* residual = std::get_if<NormResidualCall>(&call.kind);
    FusedCall* matmuls = residual ? find_matmuls_after(m, *residual) : nullptr;
    if (!matmuls) continue;
    MatmulCall& matmul = std::get<MatmulCall>(matmuls->kind);
    matmul.residual = *residual;
    m.move_nodes(call, *matmuls);
  }
}

void mark_split_k_parts(Matcher& m) {
  for (FusedCall& call : m.calls()) {
    if (const MatmulCall* experts = as_matmul(call); experts && experts->route) {
      if (MatmulPart* router = find_part(m, m.uses.producer(experts->route->in[0]))) {
        router->reader = MatmulPart::Reader::router;
      }
    }
    MoeDownCall* moe = std::get_if<MoeDownCall>(&call.kind);
    if (!moe || !moe->shared) continue;
    MatmulPart* part = find_part(m, m.uses.producer(moe->shared_act->in[0]));
    if (!part || !is_shared_expert_gate(m, *moe, *part->node)) continue;
    part->reader = MatmulPart::Reader::shared_expert_gate;
    moe->has_partial_gate = true;
  }
}

std::vector<FusedCall> split_launches(const Matcher& m) {
  std::vector<const FusedCall*> ordered;
  for (const FusedCall& call : m.calls()) {
    if (!call.nodes.empty()) ordered.push_back(&call);  // else it became part of another call
  }
  std::ranges::stable_sort(ordered, {}, &FusedCall::at);
  std::vector<FusedCall> out;
  for (const FusedCall* call : ordered) {
    if (std::holds_alternative<MatmulCall>(call->kind)) {
      append_launches(m, *call, out);
    } else {
      out.push_back(*call);
    }
  }
  return out;
}

void join_routers(const Matcher& m, std::vector<FusedCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    MatmulCall* gate = as_matmul(calls[i]);
    const std::optional<size_t> found = can_take_router(gate) ? find_joinable_router(m, calls, i) : std::nullopt;
    if (!found) continue;
    const MatmulCall router = std::get<MatmulCall>(calls[*found].kind);
    gate->parts.push_back(router.parts[0]);
    gate->split_k_x = router.x;
    calls[i].nodes.insert(calls[i].nodes.end(), calls[*found].nodes.begin(), calls[*found].nodes.end());
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(*found));
    // Launches from here to the experts start their dependents late, so that the experts may read the logits early.
    for (size_t j = i + 1; j < calls.size() && !is_of_experts(calls[j]); ++j) {
      if (MatmulCall* between = as_matmul(calls[j])) between->launches_dependents_late = true;
    }
  }
}

void pair_gated_acts(const Matcher& m, std::vector<FusedCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const GatedActCall* first = std::get_if<GatedActCall>(&calls[i].kind);
    const std::optional<size_t> found = first ? find_later_gated_act(m, calls, i) : std::nullopt;
    if (!found) continue;
    FusedCall& later = calls[*found];
    later.kind = GatedActPairCall{{*first, std::get<GatedActCall>(later.kind)}};
    later.nodes.insert(later.nodes.begin(), calls[i].nodes.begin(), calls[i].nodes.end());
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

}  // namespace zinc::gpu
