#include "backend/vulkan/fusion.h"

#include <algorithm>

namespace zinc::vulkan {
namespace {

constexpr int kMaxHeadDim = 2 * kSegmentElems;  // a head is a warp's

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

Fusion::Fusion(const Graph& graph, const VulkanWeights& weights, bool keep_values)
    : graph_(graph), weights_(weights), keep_values_(keep_values) {
  find_readers();
  if (!keep_values_) find_heads();
  find_products();
  if (!keep_values_) find_combines();
  find_forms();
  if (!keep_values_) find_norms();
}

void Fusion::find_readers() {
  const size_t n_values = static_cast<size_t>(graph_.n_values()), n_nodes = graph_.nodes().size();
  owners_.resize(n_values);
  makers_.assign(n_values, -1);
  readers_.resize(n_values);
  is_host_read_.assign(n_values, false);
  runs_at_.resize(n_nodes);
  is_absorbed_.assign(n_nodes, false);
  is_foldable_.assign(n_nodes, false);
  for (size_t i = 0; i < n_values; ++i) owners_[i] = static_cast<int32_t>(i);
  for (int i = 0; i < static_cast<int>(n_nodes); ++i) {
    runs_at_[at(i)] = i;
    for (Value v : node(i).out) {
      if (v) makers_[at(v.id)] = i;
    }
    if (node(i).op == Op::view) {
      owners_[at(node(i).out[0].id)] = owner(node(i).in[0]);
      continue;
    }
    for (Value v : node(i).in) {
      if (v && !graph_.info(v).is_weight()) readers_[at(owner(v))].push_back(i);
    }
  }
  for (Value v : {graph_.logits(), graph_.hidden()}) {
    if (v) is_host_read_[at(owner(v))] = true;
  }
}

bool Fusion::has_one_reader(int32_t value) const {
  return readers_[at(value)].size() == 1 && !is_host_read_[at(value)] && !keep_values_;
}

int Fusion::first_reader(int32_t value) const {
  int first = static_cast<int>(graph_.nodes().size());
  for (int reader : readers_[at(value)]) first = std::min(first, runs_at_[at(reader)]);
  return first;
}

// ---- heads ----

HeadChain Fusion::chain_of(Value v) const {
  HeadChain chain;
  if (!v) return chain;
  chain.x = v;
  const auto maker = [&](Value value) { return makers_[at(owner(value))]; };
  if (const int i = maker(chain.x); i >= 0 && node(i).op == Op::rope && has_one_reader(owner(chain.x))) {
    chain.rope = i;
    chain.x = node(i).in[0];
  }
  const int i = maker(chain.x);
  const bool is_norm = i >= 0 && node(i).op == Op::norm && node(i).as<NormParams>().kind == NormKind::rms;
  if (is_norm && has_one_reader(owner(chain.x)) &&
      graph_.info(node(i).in[0]).shape.inner() == graph_.info(v).shape.inner()) {
    chain.norm = i;
    chain.x = node(i).in[0];
  }
  return chain;
}

void Fusion::find_heads() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::attention) continue;
    const int64_t k_dim = graph_.info(node(i).in[0]).shape.inner();
    const int64_t v_dim = node(i).in[2] ? graph_.info(node(i).in[2]).shape.inner() : 0;
    if (k_dim > kMaxHeadDim || v_dim > kMaxHeadDim) continue;
    HeadGroup group{i, {chain_of(node(i).in[0]), chain_of(node(i).in[1]), chain_of(node(i).in[2])}};
    for (const HeadChain& part : group.parts) {
      if (!part.x) continue;
      later_uses_.push_back({part.x, i});
      for (int absorbed : {part.norm, part.rope}) {
        if (absorbed < 0) continue;
        is_absorbed_[at(absorbed)] = true;
        runs_at_[at(absorbed)] = i;
      }
    }
    heads_.push_back(group);
  }
}

const HeadGroup* Fusion::heads_of(int attention) const {
  const auto found = std::ranges::find(heads_, attention, &HeadGroup::attention);
  return found == heads_.end() ? nullptr : &*found;
}

// ---- products ----

const DeviceMatrix* Fusion::matrix_of(int i) const { return weights_.matrix(graph_.info(node(i).in[1]).name); }

bool Fusion::are_siblings(int a, int b) const {
  if (node(a).op != node(b).op || owner(node(a).in[0]) != owner(node(b).in[0])) return false;
  if (node(a).op == Op::moe_linear && node(a).in[2] != node(b).in[2]) return false;
  const DeviceMatrix *x = matrix_of(a), *y = matrix_of(b);
  return x->format == y->format && x->matrix.n_in == y->matrix.n_in &&
         graph_.info(node(a).in[0]).shape.n_dims() == graph_.info(node(b).in[0]).shape.n_dims();
}

// Later products of the same input join until someone reads a result.
void Fusion::extend_group(ProductGroup& group) const {
  const int first = group.nodes.front();
  int end = first_reader(owner(node(first).out[0]));
  for (int j = first + 1; j < end && group.nodes.size() < kMaxParts; ++j) {
    if (!is_product(j) || is_absorbed_[at(j)] || !are_siblings(first, j)) continue;
    group.nodes.push_back(j);
    end = std::min(end, first_reader(owner(node(j).out[0])));
  }
}

// The gate or the sum that reads the results, and where all of it runs.
void Fusion::finish_group(ProductGroup& group) {
  group.at = group.nodes.back();
  const auto result = [&](size_t i) { return owner(node(group.nodes[i]).out[0]); };
  const int reader = has_one_reader(result(0)) ? readers_[at(result(0))].front() : -1;
  if (reader >= 0 && node(reader).op == Op::gated_act && group.nodes.size() == 2 && has_one_reader(result(1)) &&
      readers_[at(result(1))].front() == reader) {
    if (owner(node(reader).in[0]) == result(1)) std::swap(group.nodes[0], group.nodes[1]);
    group.act = group.at = reader;
  } else if (reader >= 0 && node(reader).op == Op::add && group.nodes.size() == 1 &&
             node(group.nodes[0]).op == Op::linear && owner(node(reader).in[0]) != owner(node(reader).in[1])) {
    group.add = group.at = reader;
  }
}

void Fusion::find_products() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (!is_product(i) || is_absorbed_[at(i)]) continue;
    ProductGroup group{.nodes = {i}};
    if (!keep_values_) extend_group(group);
    finish_group(group);
    for (int member : group.nodes) {
      is_absorbed_[at(member)] = true;
      runs_at_[at(member)] = group.at;
      later_uses_.push_back({node(member).in[0], group.at});
      if (node(member).op == Op::moe_linear) later_uses_.push_back({node(member).in[2], group.at});
    }
    if (group.act >= 0) is_absorbed_[at(group.act)] = true;
    if (group.add >= 0) is_absorbed_[at(group.add)] = true;
    products_.push_back(std::move(group));
  }
}

const ProductGroup* Fusion::products_at(int i) const {
  const auto found = std::ranges::find(products_, i, &ProductGroup::at);
  return found == products_.end() ? nullptr : &*found;
}

// A weighted sum of experts and the sum that reads it run as one, at the latter.
void Fusion::find_combines() {
  combine_of_.assign(graph_.nodes().size(), -1);
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_combine) continue;
    const int32_t result = owner(node(i).out[0]);
    if (!has_one_reader(result)) continue;
    const int reader = readers_[at(result)].front();
    if (node(reader).op != Op::add || is_absorbed_[at(reader)] || combine_of_[at(reader)] >= 0) continue;
    if (owner(node(reader).in[0]) == owner(node(reader).in[1])) continue;
    combine_of_[at(reader)] = i;
    is_absorbed_[at(i)] = true;
    runs_at_[at(i)] = reader;
    later_uses_.push_back({node(i).in[0], reader});
    later_uses_.push_back({node(i).in[1], reader});
  }
}

// ---- rounded forms ----

void Fusion::find_forms() {
  for (const ProductGroup& group : products_) {
    const DeviceMatrix* matrix = matrix_of(group.nodes[0]);
    const int block = matrix->format->rounded_block, n_in = matrix->matrix.n_in;
    if (block == 0) continue;
    const int32_t from = owner(node(group.nodes[0]).in[0]);
    const auto same = std::ranges::find_if(
        forms_, [&](const RoundedForm& f) { return f.owner == from && f.block == block && f.n_in == n_in; });
    if (same != forms_.end()) {
      same->last_node = std::max(same->last_node, group.at);
    } else {
      forms_.push_back({from, block, n_in, runs_at_[at(makers_[at(from)])], group.at});
    }
  }
}

const RoundedForm* Fusion::form(Value v, int block, int n_in) const {
  for (const RoundedForm& f : forms_) {
    if (f.owner == owner(v) && f.block == block && f.n_in == n_in) return &f;
  }
  return nullptr;
}

const RoundedForm* Fusion::only_form(Value v, int64_t n_in) const {
  const RoundedForm* found = nullptr;
  for (const RoundedForm& f : forms_) {
    if (f.owner != owner(v)) continue;
    if (found || f.n_in != n_in) return nullptr;
    found = &f;
  }
  return found;
}

bool Fusion::is_read_as_floats(Value v) const {
  const int32_t value = owner(v);
  if (keep_values_ || is_host_read_[at(value)]) return true;
  return std::ranges::any_of(readers_[at(value)], [&](int reader) {
    return !is_product(reader) || matrix_of(reader)->format->rounded_block == 0 || owner(node(reader).in[0]) != value;
  });
}

// ---- norms ----

void Fusion::find_norms() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::norm || is_absorbed_[at(i)] || node(i).as<NormParams>().kind != NormKind::rms) continue;
    const Value out = node(i).out[0];
    const int64_t width = graph_.info(out).shape.inner();
    if (is_read_as_floats(out) || !std::ranges::all_of(readers_[at(owner(out))], [&](int reader) {
          return matrix_of(reader)->matrix.n_in == width;
        })) {
      continue;
    }
    is_foldable_[at(i)] = true;
    for (int reader : readers_[at(owner(out))]) later_uses_.push_back({node(i).in[0], runs_at_[at(reader)]});
  }
}

int Fusion::foldable_norm(Value x) const {
  const int maker = makers_[at(owner(x))];
  return maker >= 0 && is_foldable_[at(maker)] ? maker : -1;
}

}  // namespace zinc::vulkan
