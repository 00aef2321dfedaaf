#include "backend/gpu/step_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/ceil_div.h"

namespace zinc::gpu {
namespace {

double row_count(const ValueInfo& info, const BatchShape& step) {
  return static_cast<double>(info.rows == Rows::outputs ? step.n_seqs : step.n_tokens);
}

double elem_count(const Graph& graph, Value v, const BatchShape& step) {
  return static_cast<double>(graph.info(v).shape.elems()) * row_count(graph.info(v), step);
}

bool has(const FusedCall& call, const Node* n) { return std::ranges::find(call.nodes, n) != call.nodes.end(); }

// Another call or the host reads it.
bool is_written(const FusedCall& call, const GraphUses& uses, Value v) {
  const std::vector<const Node*>& readers = uses.readers(v);
  return readers.empty() || uses.is_host_read(v) ||
         !std::ranges::all_of(readers, [&](const Node* reader) { return has(call, reader); });
}

}  // namespace

Result<std::unique_ptr<StepLayout>> StepLayout::make(const Graph& graph, const BatchShape& step,
                                                     const KernelFormats& formats) {
  auto layout = std::make_unique<StepLayout>();
  const Graph* const only = &graph;
  LayoutUploader uploader(formats);
  ZINC_TRY(weights, Weights::upload({&only, 1}, layout->device, uploader, [](auto) {}));
  layout->weights = std::move(weights);
  const int n_seqs = static_cast<int>(step.n_seqs), n_tokens = static_cast<int>(step.n_tokens);
  const int max_length = static_cast<int>(step.depth + ceil_div(step.n_tokens, step.n_seqs));
  const int n_pages = static_cast<int>(ceil_div(max_length, kPageTokens)) * n_seqs;
  const CacheSizes cache_sizes{.n_pages = std::vector<int>(page_groups(graph.caches()).size(), n_pages),
                               .max_length = max_length,
                               .n_slots = n_seqs,
                               .kv_format = step.kv_format};
  ZINC_TRY(cache, Cache::allocate(graph.caches(), cache_sizes, layout->device, formats));
  layout->cache = std::move(cache);
  layout->bucket = {.max_tokens = n_tokens,
                    .max_seqs = n_seqs,
                    .max_outputs = n_seqs,
                    .max_seq_tokens = static_cast<int>(ceil_div(step.n_tokens, step.n_seqs))};
  return layout;
}

Cost call_cost(const FusedCall& call, const Graph& graph, const GraphUses& uses, const GraphCost& nodes) {
  Cost total;
  if (const QuantizeCall* quantize = std::get_if<QuantizeCall>(&call.kind)) {
    total.activation_read_bytes = elem_count(graph, quantize->x, nodes.step) * sizeof(float);
    total.activation_written_bytes = elem_count(graph, quantize->x, nodes.step);
  }
  std::set<int32_t> read;  // storage roots
  for (const Node* n : call.nodes) {
    total += nodes.nodes[static_cast<size_t>(uses.index_of(*n))].cost;
    for (Value v : n->in) {
      if (v && !graph.info(v).is_weight() && !has(call, uses.producer(v))) read.insert(uses.storage_root(v));
    }
  }
  if (call.nodes.empty()) return total;
  total.activation_read_bytes = total.activation_written_bytes = 0;
  for (int32_t root : read) {
    total.activation_read_bytes += elem_count(graph, Value{root}, nodes.step) * sizeof(float);
  }
  for (const Node* n : call.nodes) {
    for (Value v : n->out) {
      if (v && is_written(call, uses, v)) {
        total.activation_written_bytes += elem_count(graph, v, nodes.step) * sizeof(float);
      }
    }
  }
  return total;
}

void KernelLister::add(const FusedCall* call, KernelLaunch launch) {
  if (last_ != call || !last_) {
    groups_.emplace_back();
    if (call) {
      groups_.back().nodes = call->nodes;
      groups_.back().cost = call_cost(*call, graph_, uses_, nodes_);
    }
  }
  last_ = call;
  groups_.back().launches.push_back(std::move(launch));
}

std::string grid_text(const std::array<uint32_t, 3>& grid) {
  return fmt::format("{} x {} x {}", grid[0], grid[1], grid[2]);
}

}  // namespace zinc::gpu
