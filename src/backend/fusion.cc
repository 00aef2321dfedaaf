#include "backend/fusion.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr int kSegmentElems = 256;  // inputs that are quantized together
constexpr int kMaxHeadDim = 512;    // largest head_dim of attention in one kernel

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

Fusion::Fusion(const Graph& graph, const FindMatrix& matrix, const FusionLimits& limits, bool keep_values)
    : graph_(graph), limits_(limits), keep_values_(keep_values) {
  find_readers();
  matrices_.resize(graph_.nodes().size());
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (is_matmul(i)) matrices_[at(i)] = matrix(graph_.info(node(i).in[1]).name);
  }
  if (!keep_values_) find_attentions();
  find_matmuls();
  find_combines();
  find_quantized();
  if (!keep_values_) find_norms();
  if (keep_values_) return;
  find_rows();
  find_moe_downs();
  find_gated_norms();
  find_routers();
  find_deltas();
  if (limits_.gate_up_row_multiple > 0) find_gate_ups();
  if (limits_.max_residual_elems > 0) find_norm_residuals();
}

void Fusion::find_readers() {
  const size_t n_values = static_cast<size_t>(graph_.n_values()), n_nodes = graph_.nodes().size();
  storage_roots_.resize(n_values);
  producers_.assign(n_values, -1);
  readers_.resize(n_values);
  is_host_read_.assign(n_values, false);
  runs_at_.resize(n_nodes);
  is_absorbed_.assign(n_nodes, false);
  is_absorbed_in_decode_.assign(n_nodes, false);
  is_prologue_norm_.assign(n_nodes, false);
  is_decode_prologue_norm_.assign(n_nodes, false);
  for (size_t i = 0; i < n_values; ++i) storage_roots_[i] = static_cast<int32_t>(i);
  for (int i = 0; i < static_cast<int>(n_nodes); ++i) {
    runs_at_[at(i)] = i;
    for (Value v : node(i).out) {
      if (v) producers_[at(v.id)] = i;
    }
    if (node(i).op == Op::view) {
      storage_roots_[at(node(i).out[0].id)] = storage_root(node(i).in[0]);
      continue;
    }
    for (Value v : node(i).in) {
      if (v && !graph_.info(v).is_weight()) readers_[at(storage_root(v))].push_back(i);
    }
  }
  for (Value v : {graph_.logits(), graph_.hidden()}) {
    if (v) is_host_read_[at(storage_root(v))] = true;
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

// ---- attention ----

AttentionInput Fusion::chain_of(Value v) const {
  AttentionInput chain;
  if (!v) return chain;
  chain.x = v;
  const auto producer = [&](Value value) { return producers_[at(storage_root(value))]; };
  if (const int i = producer(chain.x); i >= 0 && node(i).op == Op::rope && has_one_reader(storage_root(chain.x))) {
    chain.rope = i;
    chain.x = node(i).in[0];
  }
  const int i = producer(chain.x);
  const bool is_norm = i >= 0 && node(i).op == Op::norm && node(i).as<NormParams>().kind == NormKind::rms;
  if (is_norm && has_one_reader(storage_root(chain.x)) &&
      graph_.info(node(i).in[0]).shape.inner() == graph_.info(v).shape.inner()) {
    chain.norm = i;
    chain.x = node(i).in[0];
  }
  if (chain.norm >= 0 || chain.rope >= 0) strip_slice(chain);
  return chain;
}

// Heads that are slices of longer rows are read in place.
void Fusion::strip_slice(AttentionInput& chain) const {
  const int i = producers_[at(storage_root(chain.x))];
  if (i < 0 || node(i).op != Op::slice || !has_one_reader(storage_root(chain.x))) return;
  constexpr int64_t kWide = 4;  // floats of a load
  if (node(i).as<SliceParams>().begin % kWide != 0 || graph_.info(node(i).in[0]).shape.inner() % kWide != 0) return;
  chain.slice = i;
  chain.x = node(i).in[0];
}

// The output gate: the only reader of attention's result, with the same width.
void Fusion::find_output_gate(AttentionGroup& group) const {
  const int32_t result = storage_root(node(group.attention).out[0]);
  if (!has_one_reader(result)) return;
  const int reader = readers_[at(result)].front();
  if (node(reader).op != Op::gated_act || storage_root(node(reader).in[1]) != result) return;
  const Value gate = node(reader).in[0];
  if (graph_.info(gate).shape.elems() != graph_.info(node(reader).out[0]).shape.elems()) return;
  group.act = reader;
  group.gate.x = gate;
  strip_slice(group.gate);
  const int64_t v_dim = graph_.info(gate).shape.elems() / graph_.info(node(group.attention).in[0]).shape[0];
  const int slice = group.gate.slice;
  if (slice >= 0 && graph_.info(node(slice).out[0]).shape.inner() != v_dim) group.gate = {.x = gate};
}

void Fusion::find_attentions() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::attention) continue;
    const int64_t k_dim = graph_.info(node(i).in[0]).shape.inner();
    const int64_t v_dim = node(i).in[2] ? graph_.info(node(i).in[2]).shape.inner() : 0;
    if (k_dim > kMaxHeadDim || v_dim > kMaxHeadDim) continue;
    AttentionGroup group;
    group.attention = i;
    for (size_t part = 0; part < 3; ++part) group.parts[part] = chain_of(node(i).in[part]);
    group.fits_warp = k_dim <= limits_.max_warp_head_dim && v_dim <= limits_.max_warp_head_dim;
    find_output_gate(group);
    absorb_attention(group);
    attentions_.push_back(group);
  }
}

void Fusion::absorb_attention(const AttentionGroup& group) {
  const int end = group.act >= 0 ? group.act : group.attention;
  for (const AttentionInput& part : group.parts) {
    if (!part.x) continue;
    extended_uses_.push_back({part.x, end});
    for (int absorbed : {part.slice, part.norm, part.rope}) {
      if (absorbed < 0) continue;
      (group.fits_warp ? is_absorbed_ : is_absorbed_in_decode_)[at(absorbed)] = true;
      if (group.fits_warp) runs_at_[at(absorbed)] = group.attention;
    }
  }
  if (group.act < 0) return;
  is_absorbed_in_decode_[at(group.attention)] = true;
  extended_uses_.push_back({group.gate.x, end});
  if (group.gate.slice >= 0) is_absorbed_in_decode_[at(group.gate.slice)] = true;
}

const AttentionGroup* Fusion::fused_inputs_of(int attention) const {
  const auto found = std::ranges::find(attentions_, attention, &AttentionGroup::attention);
  return found == attentions_.end() || !found->fits_warp ? nullptr : &*found;
}

const AttentionGroup* Fusion::attention_at(int i) const {
  const auto found = std::ranges::find_if(
      attentions_, [&](const AttentionGroup& group) { return (group.act >= 0 ? group.act : group.attention) == i; });
  return found == attentions_.end() ? nullptr : &*found;
}

// ---- matmuls ----

bool Fusion::are_siblings(int a, int b) const {
  if (node(a).op != node(b).op || storage_root(node(a).in[0]) != storage_root(node(b).in[0])) return false;
  if (node(a).op == Op::moe_linear && node(a).in[2] != node(b).in[2]) return false;
  const FusedMatrix *x = matrix_of(a), *y = matrix_of(b);
  return x->n_in == y->n_in && graph_.info(node(a).in[0]).shape.n_dims() == graph_.info(node(b).in[0]).shape.n_dims();
}

// Later matmuls of the same input join the group until the first result is read.
void Fusion::extend_group(MatmulGroup& group) const {
  const int first = group.nodes.front();
  int end = first_reader(storage_root(node(first).out[0]));
  for (int j = first + 1; j < end && group.nodes.size() < limits_.max_matmul_parts; ++j) {
    if (!is_matmul(j) || is_absorbed_[at(j)] || !are_siblings(first, j)) continue;
    group.nodes.push_back(j);
    end = std::min(end, first_reader(storage_root(node(j).out[0])));
  }
}

// One gated_act is the only reader of both.
bool Fusion::are_gated(int a, int b) const {
  const int32_t x = storage_root(node(a).out[0]), y = storage_root(node(b).out[0]);
  if (!has_one_reader(x) || !has_one_reader(y) || matrix_of(a)->format != matrix_of(b)->format) return false;
  const int reader = readers_[at(x)].front();
  return node(reader).op == Op::gated_act && readers_[at(y)].front() == reader &&
         storage_root(node(reader).in[0]) == x && storage_root(node(reader).in[1]) == y &&
         matrix_of(a)->n_out == matrix_of(b)->n_out;
}

// Finds the epilogue (a gated_act or an add) and the node where the group runs.
void Fusion::finish_group(MatmulGroup& group) {
  group.at = group.nodes.back();
  int first_use = static_cast<int>(graph_.nodes().size());
  for (int i : group.nodes) first_use = std::min(first_use, first_reader(storage_root(node(i).out[0])));
  for (int gate : group.nodes) {
    for (int up : group.nodes) {
      if (gate == up || !are_gated(gate, up) || readers_[at(storage_root(node(gate).out[0]))].front() != first_use)
        continue;
      std::erase_if(group.nodes, [&](int i) { return i == gate || i == up; });
      group.nodes.insert(group.nodes.begin(), {gate, up});
      group.act = group.at = first_use;
      return;
    }
  }
  const int32_t result = storage_root(node(group.nodes[0]).out[0]);
  const int reader = has_one_reader(result) ? readers_[at(result)].front() : -1;
  if (reader >= 0 && node(reader).op == Op::add && !is_absorbed_[at(reader)] && group.nodes.size() == 1 &&
      node(group.nodes[0]).op == Op::linear && storage_root(node(reader).in[0]) != storage_root(node(reader).in[1])) {
    group.add = group.at = reader;
  }
}

void Fusion::find_matmuls() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (!is_matmul(i) || is_absorbed_[at(i)]) continue;
    MatmulGroup group{.nodes = {i}};
    if (!keep_values_) extend_group(group);
    finish_group(group);
    for (int member : group.nodes) {
      is_absorbed_[at(member)] = true;
      runs_at_[at(member)] = group.at;
      extended_uses_.push_back({node(member).in[0], group.at});
      if (node(member).op == Op::moe_linear) extended_uses_.push_back({node(member).in[2], group.at});
    }
    if (group.act >= 0) is_absorbed_[at(group.act)] = true;
    if (group.add >= 0) is_absorbed_[at(group.add)] = true;
    matmuls_.push_back(std::move(group));
  }
}

const MatmulGroup* Fusion::matmuls_at(int i) const {
  const auto found = std::ranges::find(matmuls_, i, &MatmulGroup::at);
  return found == matmuls_.end() ? nullptr : &*found;
}

// The gated_act that is the only reader of the two slices (gate, up) of a matmul's row.
int Fusion::act_of_gate_up(int matmul) const {
  const Value out = node(matmul).out[0];
  std::vector<int> slices = readers_[at(storage_root(out))];
  const int64_t half = graph_.info(out).shape.inner() / 2;
  if (slices.size() != 2 || is_host_read_[at(storage_root(out))] || half % limits_.gate_up_row_multiple != 0) return -1;
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
                       only_reader(node(slices[1]).out[0]) == act &&
                       storage_root(node(act).in[0]) == result_of(slices[0]) &&
                       storage_root(node(act).in[1]) == result_of(slices[1]);
  return is_gate ? act : -1;
}

void Fusion::find_gate_ups() {
  for (MatmulGroup& group : matmuls_) {
    const int i = group.nodes[0];
    const Node& n = node(i);
    const bool is_expert = n.op == Op::moe_linear;
    const Shape& shape = graph_.info(n.in[0]).shape;
    const bool is_row = is_expert
                            ? shape.n_dims() == 1 && graph_.info(n.in[2]).shape.elems() <= limits_.max_experts_used
                            : shape.elems() == matrix_of(i)->n_in;
    if (group.nodes.size() != 1 || group.act >= 0 || group.add >= 0 || !is_row || n.in[is_expert ? 3 : 2] ||
        gated_norm(n.in[0])) {
      continue;
    }
    group.gate_up_act = act_of_gate_up(i);
    // The launch of the experts may itself write their ids, so no earlier node may read them.
    const auto is_late = [&](int r) { return r == i || runs_at_[at(r)] > group.gate_up_act; };
    if (is_expert && !std::ranges::all_of(readers_[at(storage_root(n.in[2]))], is_late)) group.gate_up_act = -1;
    if (group.gate_up_act < 0) continue;
    for (int slice : readers_[at(result_of(i))]) is_absorbed_in_decode_[at(slice)] = true;
    is_absorbed_in_decode_[at(group.gate_up_act)] = true;
    extended_uses_.push_back({row_source(n.in[0]), group.gate_up_act});
    if (is_expert) extended_uses_.push_back({n.in[2], group.gate_up_act});
    if (const int norm = prologue_norm(n.in[0], true); norm >= 0) {
      extended_uses_.push_back({node(norm).in[0], group.gate_up_act});
    }
  }
}

const MatmulGroup* Fusion::gate_up_at(int i) const {
  const auto found = std::ranges::find(matmuls_, i, &MatmulGroup::gate_up_act);
  return found == matmuls_.end() ? nullptr : &*found;
}

// moe_combine and the add that reads it run as one kernel, at the add.
void Fusion::find_combines() {
  combine_of_.assign(graph_.nodes().size(), -1);
  if (!limits_.adds_after_combine) return;
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_combine) continue;
    const int reader = only_reader(node(i).out[0]);
    if (reader < 0 || node(reader).op != Op::add || is_absorbed_[at(reader)] || combine_of_[at(reader)] >= 0) continue;
    if (storage_root(node(reader).in[0]) == storage_root(node(reader).in[1])) continue;
    combine_of_[at(reader)] = i;
    is_absorbed_[at(i)] = true;
    runs_at_[at(i)] = reader;
    extended_uses_.push_back({node(i).in[0], reader});
    extended_uses_.push_back({node(i).in[1], reader});
  }
}

// ---- quantized activations ----

void Fusion::find_quantized() {
  for (const MatmulGroup& group : matmuls_) {
    for (int i : group.nodes) {
      const FusedMatrix* matrix = matrix_of(i);
      const int block = matrix->q8_block, n_in = matrix->n_in;
      if (block == 0) continue;
      const int32_t from = storage_root(node(i).in[0]);
      const auto same = std::ranges::find_if(quantized_, [&](const QuantizedActivation& f) {
        return f.storage_root == from && f.block == block && f.n_in == n_in;
      });
      if (same != quantized_.end()) {
        same->last_node = std::max(same->last_node, group.at);
      } else {
        quantized_.push_back({from, block, n_in, runs_at_[at(producers_[at(from)])], group.at});
      }
    }
  }
}

const QuantizedActivation* Fusion::quantized(Value v, int block, int n_in) const {
  for (const QuantizedActivation& f : quantized_) {
    if (f.storage_root == storage_root(v) && f.block == block && f.n_in == n_in) return &f;
  }
  return nullptr;
}

const QuantizedActivation* Fusion::only_quantized(Value v, int64_t n_in) const {
  const QuantizedActivation* found = nullptr;
  for (const QuantizedActivation& f : quantized_) {
    if (f.storage_root != storage_root(v)) continue;
    if (found || f.n_in != n_in) return nullptr;
    found = &f;
  }
  return found;
}

bool Fusion::is_read_as_floats(Value v) const {
  const int32_t value = storage_root(v);
  if (keep_values_ || is_host_read_[at(value)]) return true;
  // MoeDownCombine reads the shared expert's row as floats; if its producer is fused, the floats are written anyway.
  const auto takes_floats = [&](const MoeDownCombine& moe) {
    return moe.shared >= 0 && storage_root(node(moe.shared).in[0]) == value &&
           !is_absorbed(producers_[at(value)], true);
  };
  if (std::ranges::any_of(moe_downs_, takes_floats)) return true;
  return std::ranges::any_of(readers_[at(value)], [&](int reader) {
    return !is_matmul(reader) || matrix_of(reader)->q8_block == 0 || storage_root(node(reader).in[0]) != value;
  });
}

// ---- norms ----

void Fusion::find_norms() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::norm || is_absorbed_[at(i)] || node(i).as<NormParams>().kind != NormKind::rms) continue;
    const Value out = node(i).out[0];
    const int64_t width = graph_.info(out).shape.inner();
    const std::vector<int>& readers = readers_[at(storage_root(out))];
    if (is_host_read_[at(storage_root(out))] || !std::ranges::all_of(readers, [&](int reader) {
          return is_matmul(reader) && matrix_of(reader)->n_in == width &&
                 storage_root(node(reader).in[0]) == storage_root(out);
        })) {
      continue;
    }
    is_decode_prologue_norm_[at(i)] = width == graph_.info(out).shape.elems() && width <= limits_.max_prologue_elems;
    is_prologue_norm_[at(i)] = !is_read_as_floats(out);
    for (int reader : readers) extended_uses_.push_back({node(i).in[0], runs_at_[at(reader)]});
  }
}

// In decode the only row is the output row, so the rows op is skipped.
void Fusion::find_rows() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::rows) continue;
    const int32_t out = storage_root(node(i).out[0]);
    if (is_host_read_[at(out)] || !std::ranges::all_of(readers_[at(out)], [&](int r) { return is_matmul(r); }))
      continue;
    is_absorbed_in_decode_[at(i)] = true;
    for (int reader : readers_[at(out)]) extended_uses_.push_back({node(i).in[0], runs_at_[at(reader)]});
  }
}

Value Fusion::row_source(Value x) const {
  const int producer = producers_[at(storage_root(x))];
  return producer >= 0 && node(producer).op == Op::rows && is_absorbed_in_decode_[at(producer)] ? node(producer).in[0]
                                                                                                : x;
}

// ---- experts in decode ----

int Fusion::only_reader(Value v) const {
  return has_one_reader(storage_root(v)) ? readers_[at(storage_root(v))].front() : -1;
}

// Adds the shared expert if its down matrix has the format and shape of the routed ones. An add that is already fused
// with another node is skipped.
void Fusion::extend_moe_down(MoeDownCombine& moe) const {
  const auto is_free_sum = [&](int i) { return i >= 0 && node(i).op == Op::add && !is_absorbed(i, true); };
  const int add = only_reader(node(moe.combine).out[0]);
  if (!is_free_sum(add)) return;
  const bool is_first = storage_root(node(add).in[0]) == result_of(moe.combine);
  const Value other = node(add).in[is_first ? 1 : 0];
  const int act = producers_[at(storage_root(other))];
  moe.add = moe.at = add;
  if (act < 0 || node(act).op != Op::gated_act || only_reader(other) != add ||
      node(act).as<GatedActParams>().act != Act::sigmoid || graph_.info(node(act).in[0]).shape.elems() != 1) {
    return;
  }
  const int matmul = producers_[at(storage_root(node(act).in[1]))];
  if (matmul < 0 || node(matmul).op != Op::linear || node(matmul).in[2] || only_reader(node(act).in[1]) != act) return;
  const FusedMatrix *a = matrix_of(moe.down), *b = matrix_of(matmul);
  if (a->format != b->format || a->n_in != b->n_in || a->n_out != b->n_out) return;
  moe.shared = matmul;
  moe.shared_act = act;
  moe.shared_add = add;
  moe.add = -1;
  const int last = only_reader(node(add).out[0]);
  if (is_free_sum(last)) moe.add = moe.at = last;
}

void Fusion::find_moe_downs() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_combine) continue;
    const int down = producers_[at(storage_root(node(i).in[0]))];
    if (down < 0 || node(down).op != Op::moe_linear || only_reader(node(down).out[0]) != i) continue;
    const int64_t n_used = graph_.info(node(down).in[2]).shape.elems();
    const int64_t row = (matrix_of(down)->n_in + kSegmentElems - 1) / kSegmentElems * kSegmentElems;
    if (matrix_of(down)->q8_block == 0 || n_used > limits_.max_experts_used ||
        (n_used + 1) * row > limits_.max_moe_down_elems || graph_.info(node(down).in[0]).shape.n_dims() == 1) {
      continue;
    }
    MoeDownCombine moe;
    moe.down = down;
    moe.combine = moe.at = i;
    extend_moe_down(moe);
    for (int member : {down, i, moe.shared, moe.shared_act, moe.shared_add, moe.add}) {
      if (member < 0) continue;
      is_absorbed_in_decode_[at(member)] = true;
      for (Value v : node(member).in) {
        if (v && !graph_.info(v).is_weight()) extended_uses_.push_back({v, moe.at});
      }
    }
    moe_downs_.push_back(moe);
  }
}

const MoeDownCombine* Fusion::moe_down_at(int i) const {
  const auto found = std::ranges::find(moe_downs_, i, &MoeDownCombine::at);
  return found == moe_downs_.end() ? nullptr : &*found;
}

// The gate's only reader is a matmul; its input is a norm over heads whose size divides a segment.
void Fusion::find_gated_norms() {
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::gated_act || is_absorbed_[at(i)] || is_absorbed_in_decode_[at(i)]) continue;
    const Value out = node(i).out[0];
    const int64_t width = graph_.info(out).shape.elems();
    const int norm = producers_[at(storage_root(node(i).in[1]))], matmul = only_reader(out);
    if (norm < 0 || node(norm).op != Op::norm || only_reader(node(norm).out[0]) != i) continue;
    if (matmul < 0 || node(matmul).op != Op::linear || matrix_of(matmul)->n_in != width ||
        storage_root(node(matmul).in[0]) != storage_root(out)) {
      continue;
    }
    const int64_t dim = graph_.info(node(norm).out[0]).shape.inner();
    const bool divides = dim >= 8 && dim <= kSegmentElems && (dim & (dim - 1)) == 0 && width % dim == 0;
    if (!divides || width > limits_.max_prologue_elems || node(norm).as<NormParams>().kind != NormKind::rms ||
        graph_.info(node(i).in[0]).shape.elems() != width) {
      continue;
    }
    gated_norms_.push_back({norm, i});
    for (int member : {norm, i}) {
      is_absorbed_in_decode_[at(member)] = true;
      for (Value v : node(member).in) {
        if (v && !graph_.info(v).is_weight()) extended_uses_.push_back({v, runs_at_[at(matmul)]});
      }
    }
  }
}

const GatedNorm* Fusion::gated_norm(Value x) const {
  const auto found =
      std::ranges::find_if(gated_norms_, [&](const GatedNorm& g) { return result_of(g.act) == storage_root(x); });
  return found == gated_norms_.end() ? nullptr : &*found;
}

// Router logits from a float matrix that only the moe_route reads. A group of experts is the first reader of the ids;
// only moe_combine nodes read the weights, and they may compute them again.
void Fusion::find_routers() {
  int busy_until = 0;  // last combine of the routers so far: there is space for the logits of one
  for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
    if (node(i).op != Op::moe_route || node(i).as<MoeRouteParams>().n_used > limits_.max_experts_used) continue;
    const int matmul = producers_[at(storage_root(node(i).in[0]))];
    if (matmul < 0 || node(matmul).op != Op::linear || only_reader(node(i).in[0]) != i) continue;
    const FusedMatrix* router = matrix_of(matmul);
    if (router->q8_block != 0 || router->n_out > limits_.max_experts ||
        router->n_in != graph_.info(node(matmul).in[0]).shape.elems()) {
      continue;
    }
    const std::vector<int>& users = readers_[at(storage_root(node(i).out[0]))];
    if (users.empty() || node(users.front()).op != Op::moe_linear || is_absorbed_in_decode_[at(users.front())] ||
        graph_.info(node(users.front()).in[0]).shape.n_dims() != 1) {
      continue;
    }
    const auto is_sum = [&](int r) { return node(r).op == Op::moe_combine; };
    const std::vector<int>& sums = readers_[at(storage_root(node(i).out[1]))];
    if (!std::ranges::all_of(sums, is_sum) || runs_at_[at(matmul)] < busy_until) continue;
    for (int sum : sums) busy_until = std::max(busy_until, sum);
    for (const MoeDownCombine& moe : moe_downs_) {
      if (std::ranges::find(sums, moe.combine) != sums.end()) busy_until = std::max(busy_until, moe.at);
    }
    routers_.push_back(i);
    is_absorbed_in_decode_[at(i)] = true;
  }
}

bool Fusion::is_shared_expert_gate(int matmul) const {
  const FusedMatrix* matrix = matrix_of(matmul);
  if (matrix->q8_block != 0 || node(matmul).in[2]) return false;
  return std::ranges::any_of(moe_downs_, [&](const MoeDownCombine& moe) {
    return moe.shared_act >= 0 && storage_root(node(moe.shared_act).in[0]) == result_of(matmul) &&
           only_reader(node(matmul).out[0]) == moe.shared_act;
  });
}

int Fusion::route_of_logits(int matmul) const {
  const auto found =
      std::ranges::find_if(routers_, [&](int r) { return storage_root(node(r).in[0]) == result_of(matmul); });
  return found == routers_.end() ? -1 : *found;
}

int Fusion::route_of_experts(const MatmulGroup& group) const {
  const int first = *std::ranges::min_element(group.nodes);
  const auto found = std::ranges::find_if(
      routers_, [&](int r) { return readers_[at(storage_root(node(r).out[0]))].front() == first; });
  return found == routers_.end() ? -1 : *found;
}

int Fusion::prologue_norm(Value x, bool is_decode) const {
  const int producer = producers_[at(storage_root(x))];
  return producer >= 0 && is_prologue_norm(producer, is_decode) ? producer : -1;
}

}  // namespace zinc
