#include "backend/cuda/uses.h"

#include <algorithm>

namespace zinc::cuda {
namespace {

bool multiplies(const Node& node) { return node.op == Op::linear || node.op == Op::moe_linear; }

}  // namespace

Uses::Uses(const Graph& graph, const CudaWeights& weights, bool keep_values) : keep_values_(keep_values) {
  const size_t n_values = static_cast<size_t>(graph.n_values());
  owners_.resize(n_values);
  makers_.assign(n_values, -1);
  n_reads_.assign(n_values, 0);
  n_float_reads_.assign(n_values, 0);
  for (size_t i = 0; i < n_values; ++i) owners_[i] = static_cast<int32_t>(i);
  int index = 0;
  for (const Node& node : graph.nodes()) {
    for (Value v : node.out) {
      if (v) makers_[static_cast<size_t>(v.id)] = index;
    }
    if (node.op == Op::view) owners_[static_cast<size_t>(node.out[0].id)] = owner(node.in[0]);
    ++index;
  }
  find_forms(graph, weights);
  for (Value v : {graph.logits(), graph.hidden()}) {  // the host reads them
    if (!v) continue;
    ++n_reads_[static_cast<size_t>(owner(v))];
    ++n_float_reads_[static_cast<size_t>(owner(v))];
  }
  find_adds(graph, weights);
}

void Uses::find_forms(const Graph& graph, const CudaWeights& weights) {
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    if (node.op == Op::view) continue;
    for (size_t k = 0; k < node.in.size(); ++k) {
      if (!node.in[k] || graph.info(node.in[k]).is_weight()) continue;
      const int32_t from = owner(node.in[k]);
      ++n_reads_[static_cast<size_t>(from)];
      const DeviceMatrix* matrix = multiplies(node) && k == 0 ? weights.matrix(graph.info(node.in[1]).name) : nullptr;
      if (!matrix || matrix->format->rounded_block == 0) {
        ++n_float_reads_[static_cast<size_t>(from)];
        continue;
      }
      const auto same = std::ranges::find_if(forms_, [&](const RoundedForm& f) {
        return f.owner == from && f.block == matrix->format->rounded_block && f.n_in == matrix->matrix.n_in;
      });
      if (same != forms_.end()) {
        same->last_node = i;
      } else {
        forms_.push_back({from, matrix->format->rounded_block, matrix->matrix.n_in,
                          makers_[static_cast<size_t>(from)], i});
      }
    }
  }
}

// y = add(a, linear(x)) or add(linear(x), a), next to each other, the product read by nobody else. The sum's memory may
// be that of x, which only a product of rounded numbers does not read.
void Uses::find_adds(const Graph& graph, const CudaWeights& weights) {
  const std::span<const Node> nodes = graph.nodes();
  fused_adds_.assign(nodes.size(), -1);
  if (keep_values_) return;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op != Op::linear) continue;
    const DeviceMatrix* matrix = weights.matrix(graph.info(nodes[i].in[1]).name);
    if (!matrix || matrix->format->rounded_block == 0) continue;
    size_t next = i + 1;
    while (next < nodes.size() && nodes[next].op == Op::view) ++next;
    if (next == nodes.size() || nodes[next].op != Op::add) continue;
    const int32_t product = nodes[i].out[0].id;
    const int32_t a = owner(nodes[next].in[0]), b = owner(nodes[next].in[1]);
    if ((a == product) == (b == product) || n_reads_[static_cast<size_t>(product)] != 1) continue;
    fused_adds_[i] = static_cast<int>(next);
  }
}

const RoundedForm* Uses::form(Value v, int block, int n_in) const {
  for (const RoundedForm& f : forms_) {
    if (f.owner == owner(v) && f.block == block && f.n_in == n_in) return &f;
  }
  return nullptr;
}

const RoundedForm* Uses::form_of_width(Value v, int64_t n_in) const {
  for (const RoundedForm& f : forms_) {
    if (f.owner == owner(v) && f.n_in == n_in) return &f;
  }
  return nullptr;
}

bool Uses::is_read_only_rounded(Value v) const {
  return !keep_values_ && n_float_reads_[static_cast<size_t>(owner(v))] == 0;
}

}  // namespace zinc::cuda
