// Patterns of norms before the residual add, and of ops that run alone.
#include "backend/gpu/matcher.h"

namespace zinc::gpu {
namespace {

// A norm of a whole row that is not fused with another node.
bool is_row_norm(const Matcher& m, const Node* n) {
  if (!is_rms_norm(n) || !m.is_free(n) || is_row_prologue_norm(m, n)) return false;
  const int64_t width = m.width(n->out[0]);
  return m.inner(n->out[0]) == width && width % 8 == 0 && width <= m.limits.max_residual_elems;
}

// The sum of two norms that have no other reader; its only reader is a norm.
bool is_sum_of_norms(const Matcher& m, const Node* sum) {
  if (!is_op(sum, Op::add) || !m.is_free(sum) || !is_row_norm(m, m.uses.only_reader(sum->out[0]))) return false;
  const Node *a = m.uses.producer(sum->in[0]), *b = m.uses.producer(sum->in[1]);
  return a != b && is_row_norm(m, a) && is_row_norm(m, b) && m.uses.only_reader(a->out[0]) == sum &&
         m.uses.only_reader(b->out[0]) == sum;
}

// The second output: norm, then scale, then mul by a vector; its norm is the first reader of the result.
void find_second_norm(const Matcher& m, NormResidualCall& call) {
  const Value result = call.out();
  for (const Node* norm : m.uses.readers(result)) {
    if (!is_row_norm(m, norm)) continue;
    const Node* scale = m.uses.only_reader(norm->out[0]);
    if (!is_op(scale, Op::scale) || !m.is_free(scale)) continue;
    const Node* mul = m.uses.only_reader(scale->out[0]);
    if (!is_op(mul, Op::mul) || !m.is_free(mul) || m.width(mul->in[1]) != m.width(result)) continue;
    const int at = m.uses.index_of(*mul);
    const bool is_first =
        std::ranges::all_of(m.uses.readers(result), [&](const Node* r) { return r == norm || m.position(*r) > at; });
    if (!is_first) continue;
    call.second_norm = norm;
    call.second_norm_scale = scale;
    call.second_norm_mul = mul;
    return;
  }
}

// The norm of the result before the next matmuls.
void find_next_norm(const Matcher& m, NormResidualCall& call) {
  const Node* norm = find_next_norm(m, call.out(), call.second_norm);
  if (!is_row_prologue_norm(m, norm)) return;
  const int at = m.uses.index_of(*norm);
  if (const Node* mul = call.second_norm_mul) {  // runs at the norm's place
    const auto is_later = [&](const Node* r) { return m.position(*r) > at; };
    if (m.uses.index_of(*mul) > at || !std::ranges::all_of(m.uses.readers(mul->out[0]), is_later)) return;
  }
  call.next_norm = norm;
  call.normed = {norm->out[0]};
}

NormResidualCall norm_residual_of(const Matcher& m, const Node& add, const Node& norm) {
  NormResidualCall call{.norms = {&norm}, .add = &add, .residual = other_operand(m, add, norm.out[0])};
  if (const Node* sum = m.uses.producer(norm.in[0]); is_sum_of_norms(m, sum)) {
    call.norms = {m.uses.producer(sum->in[0]), m.uses.producer(sum->in[1])};
    call.sum = sum;
    call.outer = &norm;
  }
  const Node* mul = m.uses.only_reader(add.out[0]);
  if (is_op(mul, Op::mul) && m.is_free(mul) && m.width(mul->in[1]) == 1) call.mul = mul;
  find_second_norm(m, call);
  if (!m.is_decode && m.limits.norms_after_residual) find_next_norm(m, call);
  return call;
}

CopyCall slice_copy(const Matcher& m, const Node& n) {
  const int length = static_cast<int>(m.inner(n.out[0]));
  return {{{.from = n.in[0],
            .to = n.out[0],
            .vectors_per_row = static_cast<int>(m.width(n.out[0])) / length,
            .from_width = static_cast<int>(m.inner(n.in[0])),
            .from_begin = static_cast<int>(n.as<SliceParams>().begin),
            .to_width = length,
            .length = length}}};
}

CopyCall concat_copies(const Matcher& m, const Node& n) {
  CopyCall call;
  int begin = 0;
  for (Value part : {n.in[0], n.in[1]}) {
    const int length = static_cast<int>(m.inner(part));
    call.copies.push_back({.from = part,
                           .to = n.out[0],
                           .vectors_per_row = static_cast<int>(m.width(part)) / length,
                           .from_width = length,
                           .to_width = static_cast<int>(m.inner(n.out[0])),
                           .to_begin = begin,
                           .length = length});
    begin += length;
  }
  return call;
}

CopyCall whole_rows(const Matcher& m, const Node& n, bool gathers_output_rows) {
  const int width = static_cast<int>(m.width(n.out[0]));
  return {{{.from = n.in[0],
            .to = n.out[0],
            .gathers_output_rows = gathers_output_rows,
            .from_width = width,
            .to_width = width,
            .length = width}}};
}

NormCall norm_of(const Matcher& m, const Node& n) {
  const int width = static_cast<int>(m.inner(n.in[0]));
  return {&n, width, static_cast<int>(m.width(n.in[0])) / width, {n.out[0]}};
}

// The compiler reports an op without a case.
KernelKind kind_of(const Matcher& m, const Node& n) {
  switch (n.op) {
    case Op::embed:
      return EmbedCall{&n};
    case Op::hidden_in:
      return whole_rows(m, n, false);
    case Op::norm:
      return norm_of(m, n);
    case Op::rope:
      return RopeCall{&n};
    case Op::attention:
      return AttentionCall{.node = &n, .inputs = {}, .out = {n.out[0]}};
    case Op::gated_act:
      return GatedActCall{&n, static_cast<int>(m.width(n.out[0])), 1, {n.out[0]}};
    case Op::moe_route:
      return RouteCall{&n};
    case Op::moe_combine:
      return CombineCall{&n};
    case Op::short_conv:
      return ShortConvCall{&n};
    case Op::delta_net:
      return DeltaNetCall{&n};
    case Op::slice:
      return slice_copy(m, n);
    case Op::concat:
      return concat_copies(m, n);
    case Op::rows:
      return whole_rows(m, n, true);
    case Op::sample:
      return SampleCall{&n};
    case Op::add:
      return ElementwiseCall{&n, kAdd};
    case Op::mul:
      return ElementwiseCall{&n, kMul};
    case Op::scale:
      return ElementwiseCall{&n, kScale};
    case Op::softcap:
      return ElementwiseCall{&n, kSoftcap};
    case Op::relu2:
      return ElementwiseCall{&n, kRelu2};
    case Op::view:        // shares the memory of its input
    case Op::linear:      // match_matmuls takes all
    case Op::moe_linear:  // likewise
      break;
  }
  ZINC_CHECK(false);
}

}  // namespace

const Node* find_next_norm(const Matcher& m, Value row, const Node* ignored) {
  for (const Node* norm : m.uses.readers(row)) {
    if (!is_rms_norm(norm) || norm == ignored || !m.is_free(norm) || m.inner(norm->out[0]) != m.width(row)) continue;
    const int at = m.uses.index_of(*norm);
    const auto is_later = [&](const Node* r) { return r == norm || r == ignored || m.position(*r) > at; };
    if (std::ranges::all_of(m.uses.readers(row), is_later)) return norm;
  }
  return nullptr;
}

std::vector<const Node*> NormResidualCall::nodes() const {
  std::vector<const Node*> all;
  for (const Node* n :
       {norms[0], norms[1], sum, outer, add, mul, second_norm, second_norm_scale, second_norm_mul, next_norm}) {
    if (n) all.push_back(n);
  }
  return all;
}

Match match_norm_residual(const Matcher& m, const Node& add) {
  if (is_sum_of_norms(m, &add)) return {};
  for (const Value operand : {add.in[0], add.in[1]}) {
    const Node* norm = m.uses.producer(operand);
    if (!is_row_norm(m, norm) || m.uses.only_reader(operand) != &add) continue;
    const NormResidualCall call = norm_residual_of(m, add, *norm);
    std::vector<const Node*> nodes = call.nodes();
    const int at = m.uses.index_of(*nodes.back());
    return FusedCall{call, std::move(nodes), at};
  }
  return {};
}

// A view shares the memory of its input.
Match match_one_op(const Matcher& m, const Node& node) {
  if (node.op == Op::view) return {};
  return FusedCall{kind_of(m, node), {&node}, m.uses.index_of(node)};
}

}  // namespace zinc::gpu
