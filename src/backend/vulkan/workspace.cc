#include "backend/vulkan/workspace.h"

#include <algorithm>
#include <cmath>

#include "graph/rope.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct Q8Sizes {
  size_t q, scale, sum;
  size_t bytes() const { return q + scale + sum; }
};
Q8Sizes sizes_of(const QuantizedActivation& activation, size_t n_rows) {
  const size_t stride = round_up(static_cast<size_t>(activation.n_in), kSegmentElems);
  return {round_up(n_rows * stride, kAlign),
          round_up(n_rows * (stride / static_cast<size_t>(activation.block)) * sizeof(float), kAlign),
          round_up(n_rows * (stride / kGroupElems) * sizeof(int), kAlign)};
}

size_t max_rows(const Graph& graph, const QuantizedActivation& activation, const Bucket& bucket) {
  const ValueInfo& info = graph.info(Value{activation.storage_root});
  const int rows = info.rows == Rows::outputs ? bucket.max_outputs : bucket.max_tokens;
  return static_cast<size_t>(rows) * static_cast<size_t>(info.shape.elems() / activation.n_in);
}

// Float experts have no cooperative-matrix kernel, and all experts of a model use the same tile size.
int expert_tile_rows(const Graph& graph, const VulkanWeights& weights, const Device& device) {
  if (device.capabilities().coopmat_k == 0) return device.tuning().prefill_rows;
  const bool all_quantized = std::ranges::all_of(graph.nodes(), [&](const Node& n) {
    return n.op != Op::moe_linear || weights.matrix(graph.info(n.in[1]).name)->format->q8_block > 0;
  });
  return all_quantized ? kMatrixExpertRows : device.tuning().prefill_rows;
}

FusionLimits fusion_limits(const Device& device) {
  return {.max_matmul_parts = kMaxParts,
          .max_warp_head_dim = 2 * kSegmentElems,
          .max_experts_used = kMaxMoeDownExperts,
          .max_experts = kMaxExperts,
          .max_prologue_elems = max_float_inputs(device.capabilities()),
          .max_moe_down_elems = kMaxQuantizedInputs,
          .adds_after_combine = true};
}

FindMatrix matrices_of(const VulkanWeights& weights) {
  return [&weights](const std::string& name) -> FusedMatrix {
    const DeviceMatrix* m = weights.matrix(name);
    return {m->format, m->format->q8_block, m->matrix.n_in, m->matrix.n_out};
  };
}

}  // namespace

int max_float_inputs(const Capabilities& device) {
  constexpr size_t kMaxInputs = 8192, kOtherSharedBytes = 6144;  // of the kernels, besides the row
  const size_t fits =
      device.shared_bytes > kOtherSharedBytes ? (device.shared_bytes - kOtherSharedBytes) / sizeof(float) : 0;
  return static_cast<int>(std::min(kMaxInputs, fits / kSegmentElems * kSegmentElems));
}

UploadLayout::UploadLayout(const Bucket& bucket, const VulkanCache& cache) {
  const size_t n_tokens = static_cast<size_t>(bucket.max_tokens), n_seqs = static_cast<size_t>(bucket.max_seqs);
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket.max_outputs));
  tokens = kCounts;
  positions = tokens + n_tokens;
  seq_of_token = positions + n_tokens;
  seq_begin = seq_of_token + n_tokens;
  slots = seq_begin + n_seqs + 1;
  output_rows = slots + n_seqs;
  logit_rows = output_rows + n_outputs;
  first_column = logit_rows + n_outputs;
  entries = first_column + static_cast<size_t>(cache.n_groups()) * n_seqs;
  n_ints = entries;
  for (int g = 0; g < cache.n_groups(); ++g) n_ints += n_seqs * static_cast<size_t>(cache.n_pages(g));
}

Workspace::Workspace(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache, const Bucket& bucket,
                     const Device& device)
    : graph_(graph),
      cache_(cache),
      bucket_(bucket),
      tile_rows_(expert_tile_rows(graph, weights, device)),
      fusion_(graph, matrices_of(weights), fusion_limits(device), bucket.keep_values),
      plan_(plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values, fusion_.extended_uses())),
      layout_(bucket, cache) {}

Result<std::unique_ptr<Workspace>> Workspace::allocate(const Graph& graph, const VulkanWeights& weights,
                                                       const VulkanCache& cache, Device& device, const Bucket& bucket) {
  std::unique_ptr<Workspace> workspace(new Workspace(graph, weights, cache, bucket, device));
  if (Status s = workspace->allocate_buffers(device); !s.ok()) return s.error();
  if (Status s = workspace->allocate_quantized(device); !s.ok()) return s.error();
  if (Status s = workspace->make_rope_buffers(weights, device); !s.ok()) return s.error();
  return workspace;
}

Status Workspace::allocate_buffers(Device& device) {
  const size_t n_outputs = static_cast<size_t>(bucket_.max_outputs);
  const size_t n_split_tokens = static_cast<size_t>(std::min(bucket_.max_tokens, kMaxSplitTokens));
  size_t partial_floats = 0, n_done_counters = 0, delta_floats = 0;
  for (const Node& node : graph_.nodes()) {
    if (node.op == Op::hidden_in) hidden_in_floats_ = static_cast<size_t>(graph_.info(node.out[0]).shape.elems());
    if (node.op == Op::moe_route) {
      const int64_t n_experts = graph_.info(node.in[0]).shape.elems();
      const int64_t n_pairs = int64_t{bucket_.max_tokens} * node.as<MoeRouteParams>().n_used;
      n_pairs_ = std::max(n_pairs_, static_cast<size_t>(n_pairs));
      n_tiles_ = std::max(n_tiles_, static_cast<size_t>(max_expert_tiles(n_pairs, n_experts)));
    }
    if (node.op == Op::delta_net) {
      const Shape &k = graph_.info(node.in[1]).shape, &v = graph_.info(node.in[2]).shape;
      const int64_t n_chunked_tokens = bucket_.max_tokens / kDeltaChunk * kDeltaChunk;
      delta_floats =
          std::max(delta_floats, static_cast<size_t>(n_chunked_tokens * v[0] * (k[1] + v[1] + kDeltaChunk + 1)));
    }
    if (node.op != Op::attention) continue;
    const int layer = node.as<AttentionParams>().cache_layer;
    const size_t n_heads = static_cast<size_t>(graph_.info(node.in[0]).shape[0]);
    const size_t row = static_cast<size_t>((cache_.kv_layer(layer).v_dim + 3) / 4 * 4 + 4);
    partial_floats = std::max(partial_floats, n_split_tokens * n_heads * static_cast<size_t>(n_chunks(layer)) * row);
    n_done_counters = std::max(n_done_counters, n_split_tokens * n_heads);
  }
  ZINC_TRY(arena, device.allocate(std::max<size_t>(1, plan_.n_elems) * sizeof(float), "activations"));
  ZINC_TRY(best, device.allocate((n_outputs + 1) * kSampleSplits * sizeof(float), "sampling"));
  ZINC_TRY(best_id, device.allocate((n_outputs + 1) * kSampleSplits * sizeof(int), "sampling"));
  ZINC_TRY(tiles, device.allocate((n_pairs_ + 3 * n_tiles_ + 1) * sizeof(int), "experts"));
  ZINC_TRY(partial, device.allocate(partial_floats * sizeof(float), "attention"));
  ZINC_TRY(done_counters, device.allocate(n_done_counters * sizeof(int), "attention"));
  ZINC_TRY(sync_counters, device.allocate(4 * graph_.nodes().size() * kCounterBytes, "synchronization counters"));
  ZINC_TRY(prepared, device.allocate(delta_floats * sizeof(float), "the chunked delta rule"));
  arena_ = std::move(arena);
  delta_prepared_ = std::move(prepared);
  sync_counters_ = std::move(sync_counters);
  best_ = std::move(best);
  best_id_ = std::move(best_id);
  expert_tiles_ = std::move(tiles);
  partial_ = std::move(partial);
  done_counters_ = std::move(done_counters);
  return ok_status();
}

ExpertTiles Workspace::expert_tiles() const {
  const Address base = expert_tiles_.address();
  return {.sorted_pairs = base,
          .tiles = base + n_pairs_ * sizeof(int),
          .n_tiles = base + (n_pairs_ + 3 * n_tiles_) * sizeof(int),
          .n_bytes = expert_tiles_.size()};
}

int Workspace::n_chunks(int layer) const {
  const int group = cache_.kv_layer(layer).group;
  const int n = (cache_.max_visible_positions(group) + kChunkPositions - 1) / kChunkPositions;
  // Both ends of a window may lie inside a chunk.
  return cache_.window(group) > 0 ? n + 1 : std::max(1, n);
}

// Quantized activations with disjoint lifetimes share memory: first fit over the ranges that are free at the first use.
Status Workspace::allocate_quantized(Device& device) {
  struct ReusableRange {
    size_t offset, n_bytes;
    int last_node;
  };
  std::vector<ReusableRange> ranges;
  std::vector<size_t> order(fusion_.quantized_activations().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return fusion_.quantized_activations()[i].first_node; });
  q8_offsets_.resize(order.size());
  size_t total = 0;
  for (size_t i : order) {
    const QuantizedActivation& activation = fusion_.quantized_activations()[i];
    const size_t n_bytes = q8_bytes(activation);
    const auto reusable = std::ranges::find_if(
        ranges, [&](const ReusableRange& r) { return r.n_bytes >= n_bytes && r.last_node < activation.first_node; });
    if (reusable != ranges.end()) {
      reusable->last_node = activation.last_node;
      q8_offsets_[i] = reusable->offset;
      continue;
    }
    ranges.push_back({total, n_bytes, activation.last_node});
    q8_offsets_[i] = total;
    total += n_bytes;
  }
  ZINC_TRY(q8, device.allocate(total, "quantized activations"));
  q8_ = std::move(q8);
  return ok_status();
}

size_t Workspace::q8_bytes(const QuantizedActivation& activation) const {
  return sizes_of(activation, max_rows(graph_, activation, bucket_)).bytes();
}

Q8Activation Workspace::q8(const QuantizedActivation& activation) const {
  const size_t i = static_cast<size_t>(&activation - fusion_.quantized_activations().data());
  const Q8Sizes sizes = sizes_of(activation, max_rows(graph_, activation, bucket_));
  const Address base = q8_.address() + q8_offsets_[i];
  return {.q = base,
          .scale = base + sizes.q,
          .sum = base + sizes.q + sizes.scale,
          .stride = static_cast<int>(round_up(static_cast<size_t>(activation.n_in), kSegmentElems)),
          .block = activation.block};
}

namespace {

// (cos, sin) of n multiples of `step` positions.
std::vector<float> cos_sin_table(const std::vector<double>& frequencies, size_t n, double step, double amplitude) {
  std::vector<float> out;
  out.reserve(n * frequencies.size() * 2);
  for (size_t i = 0; i < n; ++i) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(i) * step * frequency;
      out.push_back(static_cast<float>(std::cos(angle) * amplitude));
      out.push_back(static_cast<float>(std::sin(angle) * amplitude));
    }
  }
  return out;
}

Result<Buffer> upload(Device& device, const std::vector<float>& floats) {
  ZINC_TRY(buffer, device.allocate(floats.size() * sizeof(float), "RoPE tables"));
  if (Status s = device.write(buffer, 0, std::as_bytes(std::span(floats))); !s.ok()) return s.error();
  return std::move(buffer);
}

}  // namespace

Status Workspace::make_rope_buffers(const VulkanWeights& weights, Device& device) {
  constexpr size_t kMaxPositions = size_t{1}
                                   << 22;  // if all layers have sliding windows, which do not bound the sequence length
  size_t n_positions = 0;
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const size_t n = static_cast<size_t>(cache_.n_pages(g)) * kPageTokens;
    n_positions = std::max(n_positions, cache_.window(g) == 0 ? n : size_t{0});
  }
  if (n_positions == 0) n_positions = kMaxPositions;
  rope_buffers_of_.assign(graph_.nodes().size(), -1);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op != Op::rope) continue;
    const RopeParams& params = node.as<RopeParams>();
    const std::span<const float> factors =
        node.in[1] ? std::span<const float>(weights.host_vector(graph_.info(node.in[1]).name))
                   : std::span<const float>();
    std::vector<double> frequencies = rope_frequencies(params, factors);
    const auto same = std::ranges::find_if(rope_buffers_, [&](const RopeBuffers& t) {
      return t.frequencies == frequencies && t.amplitude == params.amplitude;
    });
    rope_buffers_of_[i] = static_cast<int>(same - rope_buffers_.begin());
    if (same != rope_buffers_.end()) continue;
    RopeBuffers table;
    table.amplitude = params.amplitude;
    const size_t n_coarse = n_positions / kFinePositions + 1;
    ZINC_TRY(coarse, upload(device, cos_sin_table(frequencies, n_coarse, kFinePositions, params.amplitude)));
    ZINC_TRY(fine, upload(device, cos_sin_table(frequencies, kFinePositions, 1, 1)));
    table.frequencies = std::move(frequencies);
    table.coarse = std::move(coarse);
    table.fine = std::move(fine);
    rope_buffers_.push_back(std::move(table));
  }
  return ok_status();
}

const RopeBuffers& Workspace::rope_buffers(int node) const {
  return rope_buffers_[static_cast<size_t>(rope_buffers_of_[static_cast<size_t>(node)])];
}

}  // namespace zinc::vulkan
