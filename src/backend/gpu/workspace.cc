#include "backend/gpu/workspace.h"

#include "base/ceil_div.h"

namespace zinc::gpu {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct Q8Sizes {
  size_t q, scale, sum, aux;
  size_t bytes() const { return q + scale + sum + aux; }
};
Q8Sizes q8_sizes(const QuantizedActivation& activation, size_t n_rows, const WorkspaceOptions& options) {
  const size_t stride = round_up(static_cast<size_t>(activation.n_in), kSegmentElems);
  return {round_up(n_rows * stride, kAlign),
          round_up(n_rows * (stride / static_cast<size_t>(activation.block)) * sizeof(float), kAlign),
          round_up(n_rows * (stride / kGroupElems) * sizeof(int), kAlign),
          options.q8_aux_bytes ? round_up(options.q8_aux_bytes(activation, n_rows), kAlign) : 0};
}

size_t max_rows(const Graph& graph, const QuantizedActivation& activation, const Bucket& bucket) {
  const ValueInfo& info = graph.info(Value{activation.storage_root});
  const int rows = info.rows == Rows::outputs ? bucket.max_outputs : bucket.max_tokens;
  return static_cast<size_t>(rows) * static_cast<size_t>(info.shape.elems() / activation.n_in);
}

}  // namespace

Workspace::Workspace(const Graph& graph, const Weights& weights, const Cache& cache, const Bucket& bucket,
                     const WorkspaceOptions& options)
    : graph_(graph),
      cache_(cache),
      bucket_(bucket),
      options_(options),
      uses_(graph, bucket.keep_values),
      calls_(fuse(graph, uses_, weights, options.kernels, sizes(), bucket.keep_values)),
      plan_(plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values, extended_uses())),
      layout_(bucket, cache, options.upload) {
  find_quantized();
  find_rope_rotations(weights);
}

std::vector<ExtendedUse> Workspace::extended_uses() const {
  std::vector<ExtendedUse> uses;
  append_extended_uses(graph_, uses_, calls_, uses);
  return uses;
}

void Workspace::add_use(const std::optional<QuantizedActivation>& activation, int node) {
  if (!activation) return;
  const auto same = std::ranges::find(quantized_, *activation, &PlacedActivation::activation);
  if (same == quantized_.end()) {
    quantized_.push_back({*activation, node, node});
    return;
  }
  same->first_node = std::min(same->first_node, node);
  same->last_node = std::max(same->last_node, node);
}

void Workspace::find_quantized() {
  for (const FusedCall& call : calls_) {
    std::visit(
        [&](const auto& kind) {
          if constexpr (requires { kind.out.q8; }) add_use(kind.out.q8, call.at);
          if constexpr (requires { kind.normed.q8; }) add_use(kind.normed.q8, call.at);
          if constexpr (requires { kind.acts; }) {
            for (const GatedActCall& act : kind.acts) add_use(act.out.q8, call.at);
          }
          if constexpr (requires { kind.q8; }) add_use(kind.q8, call.at);
          if constexpr (requires { kind.to.block; }) add_use(kind.to, call.at);
        },
        call.kind);
  }
}

Status Workspace::allocate_buffer(Device& device, Buffer& buffer, size_t n_bytes, std::string_view what) {
  ZINC_TRY(allocated, device.allocate(n_bytes, what));
  buffer = std::move(allocated);
  return ok_status();
}

Status Workspace::allocate_buffers(Device& device) {
  Sizes sizes;
  for (const Node& node : graph_.nodes()) {
    if (node.op == Op::hidden_in) hidden_in_floats_ = static_cast<size_t>(graph_.info(node.out[0]).shape.elems());
    if (node.op == Op::moe_route) measure_moe(node);
    if (node.op == Op::delta_net) measure_delta(node, sizes);
    if (node.op == Op::attention) measure_attention(node, sizes);
  }
  const size_t n_best = static_cast<size_t>((bucket_.max_outputs + 1) * options_.sample_splits);
  const int64_t vocab = graph_.logits() ? graph_.info(graph_.logits()).shape.elems() : 0;
  const size_t n_chunks = static_cast<size_t>(bucket_.max_outputs * ceil_div(vocab, kSampleChunk));
  struct Part {
    Buffer& buffer;
    size_t n_bytes;
    std::string_view what;
  };
  for (const Part& part : {Part{arena_, std::max<size_t>(1, plan_.n_elems) * sizeof(float), "activations"},
                           {q8_, place_quantized(), "quantized activations"},
                           {partial_, sizes.partial_floats * sizeof(float), "attention"},
                           {done_counters_, sizes.n_done_counters * sizeof(int), "attention"},
                           {expert_tiles_, (n_pairs_ + 3 * n_tiles_ + 1) * sizeof(int), "experts"},
                           {delta_prepared_, sizes.delta_floats * sizeof(float), "the chunked delta rule"},
                           {best_, n_best * sizeof(float), "sampling"},
                           {best_id_, n_best * sizeof(int), "sampling"},
                           {chunk_best_, n_chunks * sizeof(float), "sampling"},
                           {sample_chunks_, n_chunks * sizeof(int), "sampling"}}) {
    if (Status s = allocate_buffer(device, part.buffer, part.n_bytes, part.what); !s.ok()) return s;
  }
  return ok_status();
}

void Workspace::measure_moe(const Node& route) {
  const int64_t n_experts = graph_.info(route.in[0]).shape.elems();
  const int64_t n_pairs = int64_t{bucket_.max_tokens} * route.as<MoeRouteParams>().n_used;
  n_pairs_ = std::max(n_pairs_, static_cast<size_t>(n_pairs));
  n_tiles_ = std::max(n_tiles_, static_cast<size_t>(max_expert_tiles(n_pairs, n_experts)));
}

void Workspace::measure_delta(const Node& delta, Sizes& sizes) const {
  const Shape &k = graph_.info(delta.in[1]).shape, &v = graph_.info(delta.in[2]).shape;
  const int64_t n_chunked_tokens = bucket_.max_tokens / kDeltaChunk * kDeltaChunk;
  const int64_t n_floats = n_chunked_tokens * v[0] * (k[1] + v[1] + kDeltaChunk + 1);
  sizes.delta_floats = std::max(sizes.delta_floats, static_cast<size_t>(n_floats));
}

void Workspace::measure_attention(const Node& attention, Sizes& sizes) const {
  const int layer = attention.as<AttentionParams>().cache_layer;
  const size_t n_split_tokens = static_cast<size_t>(std::min(bucket_.max_tokens, kMaxSplitTokens));
  const size_t n_heads = static_cast<size_t>(graph_.info(attention.in[0]).shape[0]);
  const size_t row = static_cast<size_t>((cache_.kv_layer(layer).v_dim + 3) / 4 * 4 + 4);  // and its maximum and sum
  const size_t n_partials =
      layout_.attention.empty()
          ? n_split_tokens * static_cast<size_t>(n_chunks(layer))
          : static_cast<size_t>(
                layout_.attention[static_cast<size_t>(cache_.kv_layer(layer).group)].limits.max_partials);
  sizes.partial_floats = std::max(sizes.partial_floats, n_partials * n_heads * row);
  const size_t n_counted_rows = !layout_.attention.empty() ? static_cast<size_t>(bucket_.max_tokens)
                                : options_.counts_rows     ? n_split_tokens
                                                           : 1;
  sizes.n_done_counters = std::max(sizes.n_done_counters, n_counted_rows * n_heads);
}

ExpertTiles Workspace::expert_tiles() const {
  const Address base = expert_tiles_.address();
  return {.sorted_pairs = base,
          .tiles = base + n_pairs_ * sizeof(int),
          .n_tiles = base + (n_pairs_ + 3 * n_tiles_) * sizeof(int),
          .n_bytes = expert_tiles_.size()};
}

// Quantized activations with disjoint lifetimes share memory: first fit over the ranges that are free at the first use.
size_t Workspace::place_quantized() {
  struct ReusableRange {
    size_t offset, n_bytes;
    int last_node;
  };
  std::vector<ReusableRange> ranges;
  std::ranges::stable_sort(quantized_, {}, &PlacedActivation::first_node);
  size_t total = 0;
  for (PlacedActivation& placed : quantized_) {
    const QuantizedActivation& activation = placed.activation;
    const size_t n_bytes = q8_sizes(activation, max_rows(graph_, activation, bucket_), options_).bytes();
    const auto reusable = std::ranges::find_if(
        ranges, [&](const ReusableRange& r) { return r.n_bytes >= n_bytes && r.last_node < placed.first_node; });
    if (reusable != ranges.end()) {
      reusable->last_node = placed.last_node;
      placed.offset = reusable->offset;
      continue;
    }
    ranges.push_back({total, n_bytes, placed.last_node});
    placed.offset = total;
    total += n_bytes;
  }
  return total;
}

Q8Buffers Workspace::q8_buffers(const QuantizedActivation& activation) const {
  const auto placed = std::ranges::find(quantized_, activation, &PlacedActivation::activation);
  ZINC_CHECK(placed != quantized_.end());
  const size_t n_rows = max_rows(graph_, activation, bucket_);
  const Q8Sizes sizes = q8_sizes(activation, n_rows, options_);
  const Address q = q8_.address() + placed->offset, scale = q + sizes.q, sum = scale + sizes.scale;
  return {.q = q,
          .scale = scale,
          .sum = sum,
          .aux = sizes.aux > 0 ? sum + sizes.sum : 0,
          .stride = static_cast<int>(round_up(static_cast<size_t>(activation.n_in), kSegmentElems)),
          .n_rows = n_rows,
          .n_bytes = sizes.bytes()};
}

void Workspace::find_rope_rotations(const Weights& weights) {
  rope_index_.resize(graph_.nodes().size());
  const auto factors = [&](Value v) {
    return v ? std::span<const float>(weights.host_vector(graph_.info(v).name)) : std::span<const float>();
  };
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op != Op::rope) continue;
    std::vector<RopeRotation> rotations =
        zinc::rope_rotations(node.as<RopeParams>(), factors(node.in[1]), factors(node.in[2]), bucket_.n_rope_scalings);
    const auto same = std::ranges::find(rope_rotations_, rotations);
    rope_index_[i] = static_cast<size_t>(same - rope_rotations_.begin());
    if (same == rope_rotations_.end()) rope_rotations_.push_back(std::move(rotations));
  }
}

size_t Workspace::rope_index(const Node& rope) const { return rope_index_[static_cast<size_t>(uses_.index_of(rope))]; }

}  // namespace zinc::gpu
