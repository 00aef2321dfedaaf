#include "backend/cuda/workspace.h"

#include <algorithm>
#include <limits>

#include "base/ceil_div.h"
#include "graph/rope.h"

namespace zinc::cuda {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct QuantizedSizes {
  size_t q, scale, sum, wgmma_aux;
  size_t bytes() const { return q + scale + sum + wgmma_aux; }
};
QuantizedSizes sizes_of(const QuantizedActivation& activation, size_t n_rows, bool has_wgmma_aux) {
  const size_t stride = round_up(static_cast<size_t>(activation.n_in), simt::kSegmentElems);
  const size_t n_aux = activation.block == simt::kGroupElems ? stride : 2 * (stride / simt::kGroupElems);
  return {round_up(n_rows * stride, kAlign),
          round_up(n_rows * (stride / static_cast<size_t>(activation.block)) * sizeof(float), kAlign),
          round_up(n_rows * (stride / simt::kGroupElems) * sizeof(int), kAlign),
          has_wgmma_aux ? round_up(n_rows * n_aux * sizeof(uint16_t), kAlign) : 0};
}

size_t max_rows(const Graph& graph, const QuantizedActivation& activation, const Bucket& bucket) {
  const ValueInfo& info = graph.info(Value{activation.storage_root});
  const int rows = info.rows == Rows::outputs ? bucket.max_outputs : bucket.max_tokens;
  return static_cast<size_t>(rows) * static_cast<size_t>(info.shape.elems() / activation.n_in);
}

constexpr FusionLimits kFusionLimits = {
    .max_matmul_parts = simt::kMaxGemvParts,
    .max_warp_head_dim = simt::kSegmentElems,  // one warp per head
    .max_experts_used = simt::kMaxExpertsUsed,
    .max_experts = simt::kMaxExperts,
    .max_prologue_elems = std::numeric_limits<int64_t>::max(),
    .max_moe_down_elems = std::numeric_limits<int64_t>::max(),
    .gate_up_row_multiple = simt::kPanelRows,
    .max_residual_elems = int64_t{simt::kMaxResidualSegments} * simt::kWarps * simt::kSegmentElems};

FindMatrix matrices_of(const CudaWeights& weights) {
  return [&weights](const std::string& name) -> FusedMatrix {
    const DeviceMatrix* m = weights.matrix(name);
    return {m->format, m->format->q8_block, m->matrix.n_in, m->matrix.n_out};
  };
}

}  // namespace

UploadLayout::UploadLayout(const Bucket& bucket, const CudaCache& cache) {
  const size_t n_tokens = static_cast<size_t>(bucket.max_tokens), n_seqs = static_cast<size_t>(bucket.max_seqs);
  tokens = simt::kCounts;
  positions = tokens + n_tokens;
  seq_of_token = positions + n_tokens;
  seq_begin = seq_of_token + n_tokens;
  slots = seq_begin + n_seqs + 1;
  output_rows = slots + n_seqs;
  sampling = output_rows + static_cast<size_t>(bucket.max_outputs);
  first_column = sampling + n_seqs * simt::kSamplingInts;
  page_tables = first_column + static_cast<size_t>(cache.n_groups()) * n_seqs;
  n_ints = page_tables;
  for (int g = 0; g < cache.n_groups(); ++g) n_ints += n_seqs * static_cast<size_t>(cache.n_pages(g));
}

Workspace::Workspace(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, const Bucket& bucket)
    : graph_(graph),
      cache_(cache),
      bucket_(bucket),
      fusion_(graph, matrices_of(weights), kFusionLimits, bucket.keep_values),
      plan_(plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values, fusion_.extended_uses())),
      layout_(bucket, cache) {}

Result<std::unique_ptr<Workspace>> Workspace::allocate(const Graph& graph, const CudaWeights& weights,
                                                       const CudaCache& cache, Device& device, const Bucket& bucket) {
  std::unique_ptr<Workspace> workspace(new Workspace(graph, weights, cache, bucket));
  if (Status s = workspace->allocate_buffers(device); !s.ok()) return s.error();
  if (Status s = workspace->allocate_sampling_buffers(device); !s.ok()) return s.error();
  if (Status s = workspace->place_quantized(device); !s.ok()) return s.error();
  if (Status s = workspace->make_rope_tables(weights, device); !s.ok()) return s.error();
  return workspace;
}

Status Workspace::allocate_buffers(Device& device) {
  ZINC_TRY(arena, device.allocate(std::max<size_t>(1, plan_.n_elems) * sizeof(float), "activations"));
  ZINC_TRY(upload, device.allocate(layout_.n_ints * sizeof(int), "step inputs"));
  arena_ = std::move(arena);
  upload_ = std::move(upload);
  const int* base = upload_.as<const int>();
  step_ = {.counts = base,
           .tokens = base + layout_.tokens,
           .positions = base + layout_.positions,
           .seq_of_token = base + layout_.seq_of_token,
           .seq_begin = base + layout_.seq_begin,
           .slots = base + layout_.slots,
           .output_rows = base + layout_.output_rows,
           .first_column = base + layout_.first_column,
           .last_sampled = cache_.last_sampled(),
           .max_seqs = bucket_.max_seqs};
  size_t partial_floats = 0, hidden_floats = 0, delta_floats = 0, max_heads = 0, n_gates = 0;
  const size_t n_tokens = static_cast<size_t>(std::min(bucket_.max_tokens, kMaxSplitTokens));
  for (const Node& node : graph_.nodes()) {
    if (node.op == Op::hidden_in) hidden_floats = static_cast<size_t>(graph_.info(node.out[0]).shape.elems());
    if (node.op == Op::moe_route) {
      const size_t n_experts = static_cast<size_t>(graph_.info(node.in[0]).shape.elems());
      const size_t n_pairs =
          static_cast<size_t>(bucket_.max_tokens) * static_cast<size_t>(node.as<MoeRouteParams>().n_used);
      n_pairs_ = std::max(n_pairs_, n_pairs);
      const Node& router = graph_.nodes()[static_cast<size_t>(fusion_.producer(node.in[0]))];
      const size_t n_in = static_cast<size_t>(graph_.info(router.in[0]).shape.elems());
      n_gates = std::max(n_gates, n_in / simt::kSegmentElems + 1);
      n_router_floats_ = std::max(n_router_floats_, n_experts * n_gates);
      n_tiles_ = std::max(n_tiles_, static_cast<size_t>(max_expert_tiles(static_cast<int64_t>(n_pairs),
                                                                         static_cast<int64_t>(n_experts))));
    }
    if (node.op == Op::delta_net) {
      const Shape &k = graph_.info(node.in[1]).shape, &v = graph_.info(node.in[2]).shape;
      const size_t row = static_cast<size_t>(v[0] * (k[1] + v[1] + simt::kDeltaChunk + 1));
      delta_floats = std::max(delta_floats, static_cast<size_t>(bucket_.max_tokens) * row);
    }
    if (node.op != Op::attention) continue;
    const int layer = node.as<AttentionParams>().cache_layer;
    const size_t n_heads = static_cast<size_t>(graph_.info(node.in[0]).shape[0]);
    const size_t row = static_cast<size_t>(simt::partial_row_floats(cache_.kv_layer(layer).v_dim));
    max_heads = std::max(max_heads, n_heads);
    partial_floats = std::max(partial_floats, n_tokens * n_heads * static_cast<size_t>(n_chunks(layer)) * row);
  }
  ZINC_TRY(hidden_in,
           device.allocate(hidden_floats * static_cast<size_t>(bucket_.max_tokens) * sizeof(float), "hidden states"));
  hidden_in_ = std::move(hidden_in);
  ZINC_TRY(tiles, device.allocate((n_pairs_ + 3 * n_tiles_ + 1) * sizeof(int), "experts"));
  expert_tiles_ = std::move(tiles);
  ZINC_TRY(prepared, device.allocate(delta_floats * sizeof(float), "the chunked scan"));
  delta_prepared_ = std::move(prepared);
  ZINC_TRY(router, device.allocate((n_router_floats_ + n_gates) * sizeof(float), "experts"));
  router_partial_ = std::move(router);
  ZINC_TRY(counts, device.allocate(max_heads * sizeof(int), "attention"));
  attention_done_counters_ = std::move(counts);
  ZINC_TRY(partial, device.allocate(partial_floats * sizeof(float), "attention"));
  partial_ = std::move(partial);
  return ok_status();
}

Status Workspace::allocate_sampling_buffers(Device& device) {
  const size_t n_outputs = static_cast<size_t>(bucket_.max_outputs);
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  const size_t n_chunks =
      static_cast<size_t>(bucket_.max_seqs) * ((vocab + simt::kSampleChunk - 1) / simt::kSampleChunk);
  const auto allocate = [&](Buffer& buffer, size_t n_bytes) -> Status {
    ZINC_TRY(allocated, device.allocate(n_bytes, "sampling"));
    buffer = std::move(allocated);
    return ok_status();
  };
  if (Status s = allocate(sampled_, std::max<size_t>(1, n_outputs) * sizeof(int)); !s.ok()) return s;
  if (Status s = allocate(best_, (n_outputs + 1) * simt::kSampleSplits * sizeof(float)); !s.ok()) return s;
  if (Status s = allocate(best_id_, (n_outputs + 1) * simt::kSampleSplits * sizeof(int)); !s.ok()) return s;
  if (Status s = allocate(chunk_best_, n_chunks * sizeof(float)); !s.ok()) return s;
  if (Status s = allocate(sample_chunks_, n_chunks * sizeof(int)); !s.ok()) return s;
  return allocate(chunk_masses_, n_chunks * sizeof(unsigned long long));
}

simt::ExpertTiles Workspace::expert_tiles() const {
  int* order = expert_tiles_.as<int>();
  return {.order = order, .tiles = order + n_pairs_, .n_tiles = order + n_pairs_ + 3 * n_tiles_};
}

int Workspace::n_chunks(int layer) const {
  const int group = cache_.kv_layer(layer).group;
  const int n = static_cast<int>(ceil_div(cache_.max_attended(group), simt::kChunkPositions));
  // Both ends of a sliding window may lie inside a chunk.
  return cache_.window(group) > 0 ? n + 1 : std::max(1, n);
}

// Quantized activations with disjoint live ranges share memory: first fit.
Status Workspace::place_quantized(Device& device) {
  has_wgmma_aux_ = device.has_wgmma();
  struct Allocation {
    size_t offset, n_bytes;
    int last_node;
  };
  std::vector<Allocation> allocations;
  std::vector<size_t> order(fusion_.quantized_activations().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return fusion_.quantized_activations()[i].first_node; });
  quantized_offsets_.resize(order.size());
  size_t total = 0;
  for (size_t i : order) {
    const QuantizedActivation& activation = fusion_.quantized_activations()[i];
    const size_t n_bytes = sizes_of(activation, max_rows(graph_, activation, bucket_), has_wgmma_aux_).bytes();
    const auto free = std::ranges::find_if(
        allocations, [&](const Allocation& p) { return p.n_bytes >= n_bytes && p.last_node < activation.first_node; });
    if (free != allocations.end()) {
      free->last_node = activation.last_node;
      quantized_offsets_[i] = free->offset;
      continue;
    }
    allocations.push_back({total, n_bytes, activation.last_node});
    quantized_offsets_[i] = total;
    total += n_bytes;
  }
  ZINC_TRY(quantized, device.allocate(total, "quantized activations"));
  quantized_ = std::move(quantized);
  return ok_status();
}

simt::Q8Activation Workspace::quantized(const QuantizedActivation& activation) const {
  const size_t i = static_cast<size_t>(&activation - fusion_.quantized_activations().data());
  const QuantizedSizes sizes = sizes_of(activation, max_rows(graph_, activation, bucket_), has_wgmma_aux_);
  std::byte* q = quantized_.as<std::byte>() + quantized_offsets_[i];
  return {
      .q = reinterpret_cast<signed char*>(q),
      .scale = reinterpret_cast<float*>(q + sizes.q),
      .sum = reinterpret_cast<int*>(q + sizes.q + sizes.scale),
      .wgmma_aux = has_wgmma_aux_ ? reinterpret_cast<unsigned short*>(q + sizes.q + sizes.scale + sizes.sum) : nullptr,
      .stride = static_cast<int>(round_up(static_cast<size_t>(activation.n_in), simt::kSegmentElems))};
}

Status Workspace::make_rope_tables(const CudaWeights& weights, Device& device) {
  rope_table_of_.assign(graph_.nodes().size(), -1);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op != Op::rope) continue;
    const zinc::RopeParams& params = node.as<zinc::RopeParams>();
    const std::span<const float> factors =
        node.in[1] ? std::span<const float>(weights.host_vector(graph_.info(node.in[1]).name))
                   : std::span<const float>();
    std::vector<double> frequencies = rope_frequencies(params, factors);
    const auto same = std::ranges::find_if(rope_tables_, [&](const RopeTable& t) {
      return t.frequencies == frequencies && t.amplitude == params.amplitude;
    });
    rope_table_of_[i] = static_cast<int>(same - rope_tables_.begin());
    if (same != rope_tables_.end()) continue;
    RopeTable table;
    const size_t n_pairs = frequencies.size();
    ZINC_TRY(on_device, device.allocate(n_pairs * sizeof(double), "RoPE tables"));
    ZINC_TRY(angles,
             device.allocate(n_pairs * 2 * sizeof(float) * static_cast<size_t>(bucket_.max_tokens), "RoPE tables"));
    if (Status s = device.copy_h2d(on_device.address(), frequencies.data(), n_pairs * sizeof(double)); !s.ok())
      return s;
    if (Status s = device.wait(); !s.ok()) return s;
    table.frequencies = std::move(frequencies);
    table.amplitude = params.amplitude;
    table.device_frequencies = std::move(on_device);
    table.table = std::move(angles);
    rope_tables_.push_back(std::move(table));
  }
  return ok_status();
}

const RopeTable& Workspace::rope_table(int node) const {
  return rope_tables_[static_cast<size_t>(rope_table_of_[static_cast<size_t>(node)])];
}

}  // namespace zinc::cuda
