// Fusion of gated delta rule layers (decode only) and of norms before the residual add.
#include <algorithm>
#include <array>

#include "backend/fusion.h"

namespace zinc {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

// ---- gated delta rule in decode ----

int Fusion::sliced_from(Value v, int64_t begin) const {
  const int slice = producers_[at(storage_root(v))];
  if (slice < 0 || node(slice).op != Op::slice || !has_one_reader(storage_root(v))) return -1;
  return node(slice).as<SliceParams>().begin == begin ? producer(node(slice).in[0]) : -1;
}

// q and k are L2 norms of heads; q, k and v are consecutive slices, and the only readers, of one convolution.
void Fusion::find_deltas() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::delta_net) continue;
    DeltaGroup group{.delta = i};
    group.q_norm = producer(node(i).in[0]);
    group.k_norm = producer(node(i).in[1]);
    const auto is_norm = [&](int norm, Value v) {
      return norm >= 0 && node(norm).op == Op::norm && node(norm).as<NormParams>().kind == NormKind::l2 &&
             !node(norm).in[1] && only_reader(v) == i &&
             graph_.info(node(norm).out[0]).shape.inner() == graph_.info(v).shape.inner();
    };
    if (!is_norm(group.q_norm, node(i).in[0]) || !is_norm(group.k_norm, node(i).in[1])) continue;
    const int64_t key_dim = graph_.info(node(i).in[1]).shape.elems();
    group.conv = sliced_from(node(group.q_norm).in[0], 0);
    if (group.conv < 0 || node(group.conv).op != Op::short_conv ||
        sliced_from(node(group.k_norm).in[0], key_dim) != group.conv ||
        sliced_from(node(i).in[2], 2 * key_dim) != group.conv || readers_[at(result_of(group.conv))].size() != 3 ||
        node(group.q_norm).as<NormParams>().eps != node(group.k_norm).as<NormParams>().eps) {
      continue;
    }
    deltas_.push_back(group);
    extended_uses_.push_back({node(group.conv).in[0], i});
    for (int reader : readers_[at(result_of(group.conv))]) is_absorbed_in_decode_[at(reader)] = true;
    for (int member : {group.conv, group.q_norm, group.k_norm}) is_absorbed_in_decode_[at(member)] = true;
  }
}

const DeltaGroup* Fusion::delta_at(int i) const {
  const auto found = std::ranges::find(deltas_, i, &DeltaGroup::delta);
  return found == deltas_.end() ? nullptr : &*found;
}

// ---- norms before the residual add ----

// A norm of a whole row that is not fused with another node.
bool Fusion::is_row_norm(int i) const {
  if (i < 0 || node(i).op != Op::norm || is_absorbed(i, true) || is_decode_prologue_norm_[at(i)]) return false;
  const Shape& shape = graph_.info(node(i).out[0]).shape;
  return node(i).as<NormParams>().kind == NormKind::rms && shape.inner() == shape.elems() && shape.elems() % 8 == 0 &&
         shape.elems() <= limits_.max_residual_elems;
}

// The sum of two norms that have no other reader; its only reader is a norm.
bool Fusion::is_sum_of_norms(int sum) const {
  if (sum < 0 || node(sum).op != Op::add || is_absorbed(sum, true) || !is_row_norm(only_reader(node(sum).out[0])))
    return false;
  const int a = producer(node(sum).in[0]), b = producer(node(sum).in[1]);
  return a != b && is_row_norm(a) && is_row_norm(b) && only_reader(node(a).out[0]) == sum &&
         only_reader(node(b).out[0]) == sum;
}

// `norm` reads one row, or the sum of two norms.
NormResidual Fusion::norm_residual_of(int norm) const {
  const int sum = producer(node(norm).in[0]);
  if (!is_sum_of_norms(sum)) return {.norms = {norm, -1}};
  return {.norms = {producer(node(sum).in[0]), producer(node(sum).in[1])}, .sum = sum, .outer = norm};
}

// The second output: norm, then scale, then mul by a vector; its norm is the first reader of the result.
void Fusion::find_second_norm(NormResidual& group) const {
  const Value result = node(group.at).out[0];
  for (int norm : readers_[at(storage_root(result))]) {
    if (!is_row_norm(norm)) continue;
    const int scale = only_reader(node(norm).out[0]);
    if (scale < 0 || node(scale).op != Op::scale || is_absorbed(scale, true)) continue;
    const int mul = only_reader(node(scale).out[0]);
    if (mul < 0 || node(mul).op != Op::mul || is_absorbed(mul, true) ||
        graph_.info(node(mul).in[1]).shape.elems() != graph_.info(result).shape.elems()) {
      continue;
    }
    const bool is_first = std::ranges::all_of(readers_[at(storage_root(result))],
                                              [&](int r) { return r == norm || runs_at_[at(r)] > mul; });
    if (!is_first) continue;
    group.second_norm = norm;
    group.second_norm_scale = scale;
    group.second_norm_mul = group.at = mul;
    return;
  }
}

// Norm and residual add can be the prologue of the next norm's matmuls if those are one group and read the sum first.
int Fusion::matmuls_that_add_residual(const NormResidual& group) const {
  if (group.outer >= 0 || group.second_norm >= 0) return -1;
  const std::vector<int>& readers = readers_[at(result_of(group.at))];
  for (int norm : readers) {
    if (!is_decode_prologue_norm_[at(norm)]) continue;
    const std::vector<int>& matmuls = readers_[at(result_of(norm))];
    const int runs_at = matmuls.empty() ? -1 : runs_at_[at(matmuls[0])];
    const MatmulGroup* reader = runs_at < 0 ? nullptr : matmuls_at(runs_at);
    if (!reader || reader->gate_up_act >= 0 || is_moe_down(*reader) || node(reader->nodes[0]).op != Op::linear)
      continue;
    const bool is_one_group = std::ranges::all_of(matmuls, [&](int p) { return runs_at_[at(p)] == runs_at; });
    const bool is_first = std::ranges::all_of(readers, [&](int r) { return r == norm || runs_at_[at(r)] > runs_at; });
    if (is_one_group && is_first) return runs_at;
  }
  return -1;
}

void Fusion::find_norm_residuals() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::add || is_absorbed(i, true) || is_sum_of_norms(i)) continue;
    for (const Value operand : {node(i).in[0], node(i).in[1]}) {
      const int norm = producer(operand);
      if (!is_row_norm(norm) || only_reader(operand) != i) continue;
      NormResidual group = norm_residual_of(norm);
      group.add = group.at = i;
      const int mul = only_reader(node(i).out[0]);
      if (mul >= 0 && node(mul).op == Op::mul && !is_absorbed(mul, true) &&
          graph_.info(node(mul).in[1]).shape.elems() == 1) {
        group.mul = group.at = mul;
      }
      find_second_norm(group);
      group.in_matmul_at = matmuls_that_add_residual(group);
      for (int member : {group.norms[0], group.norms[1], group.sum, group.outer, group.add, group.mul,
                         group.second_norm, group.second_norm_scale, group.second_norm_mul}) {
        if (member < 0) continue;
        is_absorbed_in_decode_[at(member)] = true;
        for (Value v : node(member).in) {
          if (v && !graph_.info(v).is_weight()) extended_uses_.push_back({v, std::max(group.at, group.in_matmul_at)});
        }
      }
      norm_residuals_.push_back(group);
      break;
    }
  }
}

// nullptr also if one of the members is fused with another node.
const NormResidual* Fusion::norm_residual_with(int i) const {
  for (const NormResidual& group : norm_residuals_) {
    const std::array members = {
        group.norms[0],          group.norms[1],       group.sum, group.outer, group.add, group.mul, group.second_norm,
        group.second_norm_scale, group.second_norm_mul};
    if (std::ranges::find(members, i) == members.end()) continue;
    const auto runs_elsewhere = [&](int member) {
      return member >= 0 && (is_absorbed(member, false) || combine_at(member) >= 0);
    };
    return std::ranges::any_of(members, runs_elsewhere) ? nullptr : &group;
  }
  return nullptr;
}

const NormResidual* Fusion::norm_residual_in(const MatmulGroup& group) const {
  const auto found = std::ranges::find(norm_residuals_, group.at, &NormResidual::in_matmul_at);
  return found == norm_residuals_.end() ? nullptr : &*found;
}

const NormResidual* Fusion::norm_residual_at(int i) const {
  const auto found = std::ranges::find(norm_residuals_, i, &NormResidual::at);
  return found == norm_residuals_.end() ? nullptr : &*found;
}

}  // namespace zinc
