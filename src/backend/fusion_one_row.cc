// What runs as one kernel: delta layers in steps of one row alone, and norms before the residual.
#include <algorithm>
#include <array>

#include "backend/fusion.h"

namespace zinc {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

// ---- delta layers of one row ----

int Fusion::sliced_from(Value v, int64_t begin) const {
  const int slice = makers_[at(owner(v))];
  if (slice < 0 || node(slice).op != Op::slice || !has_one_reader(owner(v))) return -1;
  return node(slice).as<SliceParams>().begin == begin ? maker(node(slice).in[0]) : -1;
}

// q and k are l2 norms of heads, q, k and v consecutive slices of one convolution that nobody else reads.
void Fusion::find_deltas() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::delta_net) continue;
    DeltaGroup group{.delta = i};
    group.q_norm = maker(node(i).in[0]);
    group.k_norm = maker(node(i).in[1]);
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
    later_uses_.push_back({node(group.conv).in[0], i});
    for (int reader : readers_[at(result_of(group.conv))]) is_absorbed_in_one_row_[at(reader)] = true;
    for (int member : {group.conv, group.q_norm, group.k_norm}) is_absorbed_in_one_row_[at(member)] = true;
  }
}

const DeltaGroup* Fusion::delta_at(int i) const {
  const auto found = std::ranges::find(deltas_, i, &DeltaGroup::delta);
  return found == deltas_.end() ? nullptr : &*found;
}

// ---- norms before the residual ----

// A norm of a whole row that is a launch of its own.
bool Fusion::is_row_norm(int i) const {
  if (i < 0 || node(i).op != Op::norm || is_absorbed(i, true) || folds_in_one_row_[at(i)]) return false;
  const Shape& shape = graph_.info(node(i).out[0]).shape;
  return node(i).as<NormParams>().kind == NormKind::rms && shape.inner() == shape.elems() && shape.elems() % 8 == 0 &&
         shape.elems() <= limits_.stream_elems;
}

// Of two rows that are normed for it alone, and read by a norm alone.
bool Fusion::is_sum_of_norms(int sum) const {
  if (sum < 0 || node(sum).op != Op::add || is_absorbed(sum, true) || !is_row_norm(only_reader(node(sum).out[0])))
    return false;
  const int a = maker(node(sum).in[0]), b = maker(node(sum).in[1]);
  return a != b && is_row_norm(a) && is_row_norm(b) && only_reader(node(a).out[0]) == sum &&
         only_reader(node(b).out[0]) == sum;
}

// `norm` is of one row, or of the sum of two that are normed themselves.
AddNormed Fusion::normed_by(int norm) const {
  const int sum = maker(node(norm).in[0]);
  if (!is_sum_of_norms(sum)) return {.norms = {norm, -1}};
  return {.norms = {maker(node(sum).in[0]), maker(node(sum).in[1])}, .sum = sum, .outer = norm};
}

// The first to read the result is a norm, then a factor, then a vector of them.
void Fusion::find_branch(AddNormed& group) const {
  const Value result = node(group.at).out[0];
  for (int norm : readers_[at(owner(result))]) {
    if (!is_row_norm(norm)) continue;
    const int scale = only_reader(node(norm).out[0]);
    if (scale < 0 || node(scale).op != Op::scale || is_absorbed(scale, true)) continue;
    const int mul = only_reader(node(scale).out[0]);
    if (mul < 0 || node(mul).op != Op::mul || is_absorbed(mul, true) ||
        graph_.info(node(mul).in[1]).shape.elems() != graph_.info(result).shape.elems()) {
      continue;
    }
    const bool is_first =
        std::ranges::all_of(readers_[at(owner(result))], [&](int r) { return r == norm || runs_at_[at(r)] > mul; });
    if (!is_first) continue;
    group.branch_norm = norm;
    group.branch_scale = scale;
    group.branch_mul = group.at = mul;
    return;
  }
}

// One row's norm and sum: by the products of the sum's own norm, if they are the first to read it, in one launch.
int Fusion::products_that_add(const AddNormed& group) const {
  if (group.outer >= 0 || group.branch_norm >= 0) return -1;
  const std::vector<int>& readers = readers_[at(result_of(group.at))];
  for (int norm : readers) {
    if (!folds_in_one_row_[at(norm)]) continue;
    const std::vector<int>& products = readers_[at(result_of(norm))];
    const int runs_at = products.empty() ? -1 : runs_at_[at(products[0])];
    const ProductGroup* reader = runs_at < 0 ? nullptr : products_at(runs_at);
    if (!reader || reader->halves >= 0 || is_mixed(*reader) || node(reader->nodes[0]).op != Op::linear) continue;
    const bool is_one_group = std::ranges::all_of(products, [&](int p) { return runs_at_[at(p)] == runs_at; });
    const bool is_first = std::ranges::all_of(readers, [&](int r) { return r == norm || runs_at_[at(r)] > runs_at; });
    if (is_one_group && is_first) return runs_at;
  }
  return -1;
}

void Fusion::find_added_norms() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::add || is_absorbed(i, true) || is_sum_of_norms(i)) continue;
    for (const Value operand : {node(i).in[0], node(i).in[1]}) {
      const int norm = maker(operand);
      if (!is_row_norm(norm) || only_reader(operand) != i) continue;
      AddNormed group = normed_by(norm);
      group.add = group.at = i;
      const int mul = only_reader(node(i).out[0]);
      if (mul >= 0 && node(mul).op == Op::mul && !is_absorbed(mul, true) &&
          graph_.info(node(mul).in[1]).shape.elems() == 1) {
        group.mul = group.at = mul;
      }
      find_branch(group);
      group.by_products_at = products_that_add(group);
      for (int member : {group.norms[0], group.norms[1], group.sum, group.outer, group.add, group.mul,
                         group.branch_norm, group.branch_scale, group.branch_mul}) {
        if (member < 0) continue;
        is_absorbed_in_one_row_[at(member)] = true;
        for (Value v : node(member).in) {
          if (v && !graph_.info(v).is_weight()) later_uses_.push_back({v, std::max(group.at, group.by_products_at)});
        }
      }
      added_norms_.push_back(group);
      break;
    }
  }
}

// Where none of its members runs with something else.
const AddNormed* Fusion::add_normed_with(int i) const {
  for (const AddNormed& group : added_norms_) {
    const std::array members = {group.norms[0], group.norms[1],    group.sum,          group.outer,     group.add,
                                group.mul,      group.branch_norm, group.branch_scale, group.branch_mul};
    if (std::ranges::find(members, i) == members.end()) continue;
    const auto runs_elsewhere = [&](int member) {
      return member >= 0 && (is_absorbed(member, false) || combine_at(member) >= 0);
    };
    return std::ranges::any_of(members, runs_elsewhere) ? nullptr : &group;
  }
  return nullptr;
}

const AddNormed* Fusion::add_normed_in(const ProductGroup& group) const {
  const auto found = std::ranges::find(added_norms_, group.at, &AddNormed::by_products_at);
  return found == added_norms_.end() ? nullptr : &*found;
}

const AddNormed* Fusion::add_normed_at(int i) const {
  const auto found = std::ranges::find(added_norms_, i, &AddNormed::at);
  return found == added_norms_.end() ? nullptr : &*found;
}

}  // namespace zinc
