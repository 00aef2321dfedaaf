#include "backend/fusion.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr int kSegmentElems = 256;  // inputs that are rounded together
constexpr int kMaxHeadDim = 512;    // of attention in one kernel

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

Fusion::Fusion(const Graph& graph, const FindMatrix& matrix, const FusionLimits& limits, bool keep_values)
    : graph_(graph), limits_(limits), keep_values_(keep_values) {
  find_readers();
  matrices_.resize(graph_.nodes().size());
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (is_product(i)) matrices_[at(i)] = matrix(graph_.info(node(i).in[1]).name);
  }
  if (!keep_values_) find_heads();
  find_products();
  find_combines();
  find_forms();
  if (!keep_values_) find_norms();
  if (keep_values_) return;
  find_rows();
  find_mixes();
  find_gated_heads();
  find_routes();
  find_deltas();
  if (limits_.half_rows > 0) find_halves();
  if (limits_.stream_elems > 0) find_added_norms();
}

void Fusion::find_readers() {
  const size_t n_values = static_cast<size_t>(graph_.n_values()), n_nodes = graph_.nodes().size();
  owners_.resize(n_values);
  makers_.assign(n_values, -1);
  readers_.resize(n_values);
  is_host_read_.assign(n_values, false);
  runs_at_.resize(n_nodes);
  is_absorbed_.assign(n_nodes, false);
  is_absorbed_in_one_row_.assign(n_nodes, false);
  is_foldable_.assign(n_nodes, false);
  folds_in_one_row_.assign(n_nodes, false);
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
  if (chain.norm >= 0 || chain.rope >= 0) strip_slice(chain);
  return chain;
}

// Heads that are parts of longer rows are read where they lie.
void Fusion::strip_slice(HeadChain& chain) const {
  const int i = makers_[at(owner(chain.x))];
  if (i < 0 || node(i).op != Op::slice || !has_one_reader(owner(chain.x))) return;
  constexpr int64_t kWide = 4;  // floats of a load
  if (node(i).as<SliceParams>().begin % kWide != 0 || graph_.info(node(i).in[0]).shape.inner() % kWide != 0) return;
  chain.slice = i;
  chain.x = node(i).in[0];
}

// A gate as wide as attention's result, that alone reads it.
void Fusion::find_gate(HeadGroup& group) const {
  const int32_t result = owner(node(group.attention).out[0]);
  if (!has_one_reader(result)) return;
  const int reader = readers_[at(result)].front();
  if (node(reader).op != Op::gated_act || owner(node(reader).in[1]) != result) return;
  const Value gate = node(reader).in[0];
  if (graph_.info(gate).shape.elems() != graph_.info(node(reader).out[0]).shape.elems()) return;
  group.act = reader;
  group.gate.x = gate;
  strip_slice(group.gate);
  const int64_t v_dim = graph_.info(gate).shape.elems() / graph_.info(node(group.attention).in[0]).shape[0];
  const int slice = group.gate.slice;
  if (slice >= 0 && graph_.info(node(slice).out[0]).shape.inner() != v_dim) group.gate = {.x = gate};
}

void Fusion::find_heads() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::attention) continue;
    const int64_t k_dim = graph_.info(node(i).in[0]).shape.inner();
    const int64_t v_dim = node(i).in[2] ? graph_.info(node(i).in[2]).shape.inner() : 0;
    if (k_dim > kMaxHeadDim || v_dim > kMaxHeadDim) continue;
    HeadGroup group;
    group.attention = i;
    for (size_t part = 0; part < 3; ++part) group.parts[part] = chain_of(node(i).in[part]);
    group.is_narrow = k_dim <= limits_.narrow_head && v_dim <= limits_.narrow_head;
    find_gate(group);
    absorb_heads(group);
    heads_.push_back(group);
  }
}

void Fusion::absorb_heads(const HeadGroup& group) {
  const int end = group.act >= 0 ? group.act : group.attention;
  for (const HeadChain& part : group.parts) {
    if (!part.x) continue;
    later_uses_.push_back({part.x, end});
    for (int absorbed : {part.slice, part.norm, part.rope}) {
      if (absorbed < 0) continue;
      (group.is_narrow ? is_absorbed_ : is_absorbed_in_one_row_)[at(absorbed)] = true;
      if (group.is_narrow) runs_at_[at(absorbed)] = group.attention;
    }
  }
  if (group.act < 0) return;
  is_absorbed_in_one_row_[at(group.attention)] = true;
  later_uses_.push_back({group.gate.x, end});
  if (group.gate.slice >= 0) is_absorbed_in_one_row_[at(group.gate.slice)] = true;
}

const HeadGroup* Fusion::heads_of(int attention) const {
  const auto found = std::ranges::find(heads_, attention, &HeadGroup::attention);
  return found == heads_.end() || !found->is_narrow ? nullptr : &*found;
}

const HeadGroup* Fusion::attention_at(int i) const {
  const auto found = std::ranges::find_if(
      heads_, [&](const HeadGroup& group) { return (group.act >= 0 ? group.act : group.attention) == i; });
  return found == heads_.end() ? nullptr : &*found;
}

// ---- products ----

bool Fusion::are_siblings(int a, int b) const {
  if (node(a).op != node(b).op || owner(node(a).in[0]) != owner(node(b).in[0])) return false;
  if (node(a).op == Op::moe_linear && node(a).in[2] != node(b).in[2]) return false;
  const FusedMatrix *x = matrix_of(a), *y = matrix_of(b);
  return x->n_in == y->n_in && graph_.info(node(a).in[0]).shape.n_dims() == graph_.info(node(b).in[0]).shape.n_dims();
}

// Later products of the same input join until someone reads a result.
void Fusion::extend_group(ProductGroup& group) const {
  const int first = group.nodes.front();
  int end = first_reader(owner(node(first).out[0]));
  for (int j = first + 1; j < end && group.nodes.size() < limits_.product_parts; ++j) {
    if (!is_product(j) || is_absorbed_[at(j)] || !are_siblings(first, j)) continue;
    group.nodes.push_back(j);
    end = std::min(end, first_reader(owner(node(j).out[0])));
  }
}

// Both are read by one gate alone, and by nobody else.
bool Fusion::are_gated(int a, int b) const {
  const int32_t x = owner(node(a).out[0]), y = owner(node(b).out[0]);
  if (!has_one_reader(x) || !has_one_reader(y) || matrix_of(a)->format != matrix_of(b)->format) return false;
  const int reader = readers_[at(x)].front();
  return node(reader).op == Op::gated_act && readers_[at(y)].front() == reader && owner(node(reader).in[0]) == x &&
         owner(node(reader).in[1]) == y && matrix_of(a)->n_out == matrix_of(b)->n_out;
}

// The gate or the sum that reads the results, and where all of it runs.
void Fusion::finish_group(ProductGroup& group) {
  group.at = group.nodes.back();
  int first_use = static_cast<int>(graph_.nodes().size());
  for (int i : group.nodes) first_use = std::min(first_use, first_reader(owner(node(i).out[0])));
  for (int gate : group.nodes) {
    for (int up : group.nodes) {
      if (gate == up || !are_gated(gate, up) || readers_[at(owner(node(gate).out[0]))].front() != first_use) continue;
      std::erase_if(group.nodes, [&](int i) { return i == gate || i == up; });
      group.nodes.insert(group.nodes.begin(), {gate, up});
      group.act = group.at = first_use;
      return;
    }
  }
  const int32_t result = owner(node(group.nodes[0]).out[0]);
  const int reader = has_one_reader(result) ? readers_[at(result)].front() : -1;
  if (reader >= 0 && node(reader).op == Op::add && !is_absorbed_[at(reader)] && group.nodes.size() == 1 &&
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

// The gate that alone reads both halves of a product's row, each by itself.
int Fusion::act_of_halves(int product) const {
  const Value out = node(product).out[0];
  std::vector<int> slices = readers_[at(owner(out))];
  const int64_t half = graph_.info(out).shape.inner() / 2;
  if (slices.size() != 2 || is_host_read_[at(owner(out))] || half % limits_.half_rows != 0) return -1;
  if (node(slices[0]).op != Op::slice || node(slices[1]).op != Op::slice) return -1;
  if (node(slices[0]).as<SliceParams>().begin > 0) std::swap(slices[0], slices[1]);
  for (size_t i = 0; i < 2; ++i) {
    const Node& slice = node(slices[i]);
    if (slice.as<SliceParams>().begin != static_cast<int64_t>(i) * half ||
        graph_.info(slice.out[0]).shape.inner() != half) {
      return -1;
    }
  }
  const int act = only_reader(node(slices[0]).out[0]);
  const bool is_gate = act >= 0 && node(act).op == Op::gated_act && !is_absorbed(act, true) &&
                       only_reader(node(slices[1]).out[0]) == act && owner(node(act).in[0]) == result_of(slices[0]) &&
                       owner(node(act).in[1]) == result_of(slices[1]);
  return is_gate ? act : -1;
}

void Fusion::find_halves() {
  for (ProductGroup& group : products_) {
    const int i = group.nodes[0];
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    const Shape& shape = graph_.info(n.in[0]).shape;
    const bool is_row = is_expert ? shape.n_dims() == 1 && graph_.info(n.in[2]).shape.elems() <= limits_.used
                                  : shape.elems() == matrix_of(i)->n_in;
    if (group.nodes.size() != 1 || group.act >= 0 || group.add >= 0 || !is_row || n.in[is_expert ? 3 : 2] ||
        gated_heads(n.in[0])) {
      continue;
    }
    group.halves = act_of_halves(i);
    // A launch of experts may leave their ids: nobody reads them before it.
    const auto is_late = [&](int r) { return r == i || runs_at_[at(r)] > group.halves; };
    if (is_expert && !std::ranges::all_of(readers_[at(owner(n.in[2]))], is_late)) group.halves = -1;
    if (group.halves < 0) continue;
    for (int slice : readers_[at(result_of(i))]) is_absorbed_in_one_row_[at(slice)] = true;
    is_absorbed_in_one_row_[at(group.halves)] = true;
    later_uses_.push_back({row_source(n.in[0]), group.halves});
    if (is_expert) later_uses_.push_back({n.in[2], group.halves});
    if (const int norm = foldable_norm(n.in[0], true); norm >= 0) {
      later_uses_.push_back({node(norm).in[0], group.halves});
    }
  }
}

const ProductGroup* Fusion::halves_at(int i) const {
  const auto found = std::ranges::find(products_, i, &ProductGroup::halves);
  return found == products_.end() ? nullptr : &*found;
}

// A weighted sum of experts and the sum that reads it run as one, at the latter.
void Fusion::find_combines() {
  combine_of_.assign(graph_.nodes().size(), -1);
  if (!limits_.sums_combines) return;
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_combine) continue;
    const int reader = only_reader(node(i).out[0]);
    if (reader < 0 || node(reader).op != Op::add || is_absorbed_[at(reader)] || combine_of_[at(reader)] >= 0) continue;
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
    for (int i : group.nodes) {
      const FusedMatrix* matrix = matrix_of(i);
      const int block = matrix->rounded_block, n_in = matrix->n_in;
      if (block == 0) continue;
      const int32_t from = owner(node(i).in[0]);
      const auto same = std::ranges::find_if(
          forms_, [&](const RoundedForm& f) { return f.owner == from && f.block == block && f.n_in == n_in; });
      if (same != forms_.end()) {
        same->last_node = std::max(same->last_node, group.at);
      } else {
        forms_.push_back({from, block, n_in, runs_at_[at(makers_[at(from)])], group.at});
      }
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
  // A mix takes the shared expert's row as floats; who makes it with its products leaves them anyway.
  const auto takes_floats = [&](const MixGroup& mix) {
    return mix.shared >= 0 && owner(node(mix.shared).in[0]) == value && !is_absorbed(makers_[at(value)], true);
  };
  if (std::ranges::any_of(mixes_, takes_floats)) return true;
  return std::ranges::any_of(readers_[at(value)], [&](int reader) {
    return !is_product(reader) || matrix_of(reader)->rounded_block == 0 || owner(node(reader).in[0]) != value;
  });
}

// ---- norms ----

void Fusion::find_norms() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::norm || is_absorbed_[at(i)] || node(i).as<NormParams>().kind != NormKind::rms) continue;
    const Value out = node(i).out[0];
    const int64_t width = graph_.info(out).shape.inner();
    const std::vector<int>& readers = readers_[at(owner(out))];
    if (is_host_read_[at(owner(out))] || !std::ranges::all_of(readers, [&](int reader) {
          return is_product(reader) && matrix_of(reader)->n_in == width && owner(node(reader).in[0]) == owner(out);
        })) {
      continue;
    }
    folds_in_one_row_[at(i)] = width == graph_.info(out).shape.elems() && width <= limits_.row_elems;
    is_foldable_[at(i)] = !is_read_as_floats(out);
    for (int reader : readers) later_uses_.push_back({node(i).in[0], runs_at_[at(reader)]});
  }
}

// In a step of one row the only one is the one wanted.
void Fusion::find_rows() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::rows) continue;
    const int32_t out = owner(node(i).out[0]);
    if (is_host_read_[at(out)] || !std::ranges::all_of(readers_[at(out)], [&](int r) { return is_product(r); }))
      continue;
    is_absorbed_in_one_row_[at(i)] = true;
    for (int reader : readers_[at(out)]) later_uses_.push_back({node(i).in[0], runs_at_[at(reader)]});
  }
}

Value Fusion::row_source(Value x) const {
  const int maker = makers_[at(owner(x))];
  return maker >= 0 && node(maker).op == Op::rows && is_absorbed_in_one_row_[at(maker)] ? node(maker).in[0] : x;
}

// ---- experts of one row ----

int Fusion::only_reader(Value v) const { return has_one_reader(owner(v)) ? readers_[at(owner(v))].front() : -1; }

// The shared expert beside the routed ones, where its last matrix is like theirs. A sum that runs with
// something else is left to that.
void Fusion::extend_mix(MixGroup& mix) const {
  const auto is_free_sum = [&](int i) { return i >= 0 && node(i).op == Op::add && !is_absorbed(i, true); };
  const int add = only_reader(node(mix.combine).out[0]);
  if (!is_free_sum(add)) return;
  const bool is_first = owner(node(add).in[0]) == result_of(mix.combine);
  const Value other = node(add).in[is_first ? 1 : 0];
  const int act = makers_[at(owner(other))];
  mix.add = mix.at = add;
  if (act < 0 || node(act).op != Op::gated_act || only_reader(other) != add ||
      node(act).as<GatedActParams>().act != Act::sigmoid || graph_.info(node(act).in[0]).shape.elems() != 1) {
    return;
  }
  const int product = makers_[at(owner(node(act).in[1]))];
  if (product < 0 || node(product).op != Op::linear || node(product).in[2] || only_reader(node(act).in[1]) != act)
    return;
  const FusedMatrix *a = matrix_of(mix.down), *b = matrix_of(product);
  if (a->format != b->format || a->n_in != b->n_in || a->n_out != b->n_out) return;
  mix.shared = product;
  mix.shared_act = act;
  mix.shared_add = add;
  mix.add = -1;
  const int last = only_reader(node(add).out[0]);
  if (is_free_sum(last)) mix.add = mix.at = last;
}

void Fusion::find_mixes() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_combine) continue;
    const int down = makers_[at(owner(node(i).in[0]))];
    if (down < 0 || node(down).op != Op::moe_linear || only_reader(node(down).out[0]) != i) continue;
    const int64_t n_used = graph_.info(node(down).in[2]).shape.elems();
    const int64_t row = (matrix_of(down)->n_in + kSegmentElems - 1) / kSegmentElems * kSegmentElems;
    if (matrix_of(down)->rounded_block == 0 || n_used > limits_.used || (n_used + 1) * row > limits_.mix_elems ||
        graph_.info(node(down).in[0]).shape.n_dims() == 1) {
      continue;
    }
    MixGroup mix;
    mix.down = down;
    mix.combine = mix.at = i;
    extend_mix(mix);
    for (int member : {down, i, mix.shared, mix.shared_act, mix.shared_add, mix.add}) {
      if (member < 0) continue;
      is_absorbed_in_one_row_[at(member)] = true;
      for (Value v : node(member).in) {
        if (v && !graph_.info(v).is_weight()) later_uses_.push_back({v, mix.at});
      }
    }
    mixes_.push_back(mix);
  }
}

const MixGroup* Fusion::mix_at(int i) const {
  const auto found = std::ranges::find(mixes_, i, &MixGroup::at);
  return found == mixes_.end() ? nullptr : &*found;
}

// The gate's result is read by products alone; its own input is a norm of heads that divide a segment.
void Fusion::find_gated_heads() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::gated_act || is_absorbed_[at(i)] || is_absorbed_in_one_row_[at(i)]) continue;
    const Value out = node(i).out[0];
    const int64_t width = graph_.info(out).shape.elems();
    const int norm = makers_[at(owner(node(i).in[1]))], product = only_reader(out);
    if (norm < 0 || node(norm).op != Op::norm || only_reader(node(norm).out[0]) != i) continue;
    if (product < 0 || node(product).op != Op::linear || matrix_of(product)->n_in != width ||
        owner(node(product).in[0]) != owner(out)) {
      continue;
    }
    const int64_t dim = graph_.info(node(norm).out[0]).shape.inner();
    const bool divides = dim >= 8 && dim <= kSegmentElems && (dim & (dim - 1)) == 0 && width % dim == 0;
    if (!divides || width > limits_.row_elems || node(norm).as<NormParams>().kind != NormKind::rms ||
        graph_.info(node(i).in[0]).shape.elems() != width) {
      continue;
    }
    gated_heads_.push_back({norm, i});
    for (int member : {norm, i}) {
      is_absorbed_in_one_row_[at(member)] = true;
      for (Value v : node(member).in) {
        if (v && !graph_.info(v).is_weight()) later_uses_.push_back({v, runs_at_[at(product)]});
      }
    }
  }
}

const GatedHeads* Fusion::gated_heads(Value x) const {
  const auto found =
      std::ranges::find_if(gated_heads_, [&](const GatedHeads& g) { return result_of(g.act) == owner(x); });
  return found == gated_heads_.end() ? nullptr : &*found;
}

// Logits of float matrices that only the route reads, whose ids a group of experts reads first; and its weights the
// sums behind them, which may work them out once more.
void Fusion::find_routes() {
  int busy_until = 0;  // the last sum of the routes so far: there is room for the logits of one
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_route || node(i).as<MoeRouteParams>().n_used > limits_.used) continue;
    const int product = makers_[at(owner(node(i).in[0]))];
    if (product < 0 || node(product).op != Op::linear || only_reader(node(i).in[0]) != i) continue;
    const FusedMatrix* router = matrix_of(product);
    if (router->rounded_block != 0 || router->n_out > limits_.experts ||
        router->n_in != graph_.info(node(product).in[0]).shape.elems()) {
      continue;
    }
    const std::vector<int>& users = readers_[at(owner(node(i).out[0]))];
    if (users.empty() || node(users.front()).op != Op::moe_linear || is_absorbed_in_one_row_[at(users.front())] ||
        graph_.info(node(users.front()).in[0]).shape.n_dims() != 1) {
      continue;
    }
    const auto is_sum = [&](int r) { return node(r).op == Op::moe_combine; };
    const std::vector<int>& sums = readers_[at(owner(node(i).out[1]))];
    if (!std::ranges::all_of(sums, is_sum) || runs_at_[at(product)] < busy_until) continue;
    for (int sum : sums) busy_until = std::max(busy_until, sum);
    for (const MixGroup& mix : mixes_) {
      if (std::ranges::find(sums, mix.combine) != sums.end()) busy_until = std::max(busy_until, mix.at);
    }
    routes_.push_back(i);
    is_absorbed_in_one_row_[at(i)] = true;
  }
}

bool Fusion::is_shared_gate(int product) const {
  const FusedMatrix* matrix = matrix_of(product);
  if (matrix->rounded_block != 0 || node(product).in[2]) return false;
  return std::ranges::any_of(mixes_, [&](const MixGroup& mix) {
    return mix.shared_act >= 0 && owner(node(mix.shared_act).in[0]) == result_of(product) &&
           only_reader(node(product).out[0]) == mix.shared_act;
  });
}

int Fusion::route_of_logits(int product) const {
  const auto found = std::ranges::find_if(routes_, [&](int r) { return owner(node(r).in[0]) == result_of(product); });
  return found == routes_.end() ? -1 : *found;
}

int Fusion::route_of_experts(const ProductGroup& group) const {
  const int first = *std::ranges::min_element(group.nodes);
  const auto found =
      std::ranges::find_if(routes_, [&](int r) { return readers_[at(owner(node(r).out[0]))].front() == first; });
  return found == routes_.end() ? -1 : *found;
}

int Fusion::foldable_norm(Value x, bool is_one_row) const {
  const int maker = makers_[at(owner(x))];
  return maker >= 0 && is_folded(maker, is_one_row) ? maker : -1;
}

}  // namespace zinc
