#include "backend/vulkan/room.h"

#include <algorithm>
#include <cmath>

#include "graph/rope.h"

namespace zinc::vulkan {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct RoundedSizes {
  size_t q, scale, sum;
  size_t bytes() const { return q + scale + sum; }
};
RoundedSizes sizes_of(const RoundedForm& form, size_t n_rows) {
  const size_t stride = round_up(static_cast<size_t>(form.n_in), kSegmentElems);
  return {round_up(n_rows * stride, kAlign),
          round_up(n_rows * (stride / static_cast<size_t>(form.block)) * sizeof(float), kAlign),
          round_up(n_rows * (stride / kGroupElems) * sizeof(int), kAlign)};
}

size_t max_rows(const Graph& graph, const RoundedForm& form, const Bucket& bucket) {
  const ValueInfo& info = graph.info(Value{form.owner});
  const int rows = info.rows == Rows::outputs ? bucket.max_outputs : bucket.max_tokens;
  return static_cast<size_t>(rows) * static_cast<size_t>(info.shape.elems() / form.n_in);
}

// Experts in floats have no kernel on matrices, and all of a model's are cut alike.
int expert_tile_rows(const Graph& graph, const VulkanWeights& weights, const Device& device) {
  if (device.capabilities().matrix_depth == 0) return device.tuning().product_rows;
  const bool all_rounded = std::ranges::all_of(graph.nodes(), [&](const Node& n) {
    return n.op != Op::moe_linear || weights.matrix(graph.info(n.in[1]).name)->format->rounded_block > 0;
  });
  return all_rounded ? kMatrixExpertRows : device.tuning().product_rows;
}

FusionLimits fusion_limits(const Device& device) {
  return {.product_parts = kMaxParts,
          .narrow_head = 2 * kSegmentElems,
          .used = kMaxMixed,
          .experts = kMaxExperts,
          .row_elems = max_float_inputs(device.capabilities()),
          .mix_elems = kMaxRoundedInputs,
          .sums_combines = true};
}

FindMatrix matrices_of(const VulkanWeights& weights) {
  return [&weights](const std::string& name) -> FusedMatrix {
    const DeviceMatrix* m = weights.matrix(name);
    return {m->format, m->format->rounded_block, m->matrix.n_in, m->matrix.n_out};
  };
}

}  // namespace

int max_float_inputs(const Capabilities& device) {
  constexpr size_t kMost = 8192, kOther = 6144;  // kOther: bytes that kernels need beside
  const size_t fits = device.shared_bytes > kOther ? (device.shared_bytes - kOther) / sizeof(float) : 0;
  return static_cast<int>(std::min(kMost, fits / kSegmentElems * kSegmentElems));
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

Room::Room(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache, const Bucket& bucket,
           const Device& device)
    : graph_(graph),
      cache_(cache),
      bucket_(bucket),
      tile_rows_(expert_tile_rows(graph, weights, device)),
      fusion_(graph, matrices_of(weights), fusion_limits(device), bucket.keep_values),
      plan_(plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values, fusion_.later_uses())),
      layout_(bucket, cache) {}

Result<std::unique_ptr<Room>> Room::take(const Graph& graph, const VulkanWeights& weights, const VulkanCache& cache,
                                         Device& device, const Bucket& bucket) {
  std::unique_ptr<Room> room(new Room(graph, weights, cache, bucket, device));
  if (Status s = room->take_buffers(device); !s.ok()) return s.error();
  if (Status s = room->place_rounded(device); !s.ok()) return s.error();
  if (Status s = room->make_rope_tables(weights, device); !s.ok()) return s.error();
  return room;
}

Status Room::take_buffers(Device& device) {
  const size_t n_outputs = static_cast<size_t>(bucket_.max_outputs);
  const size_t n_split_tokens = static_cast<size_t>(std::min(bucket_.max_tokens, kMaxSplitTokens));
  size_t partial_floats = 0, n_counters = 0, delta_floats = 0;
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
      const int64_t whole = bucket_.max_tokens / kDeltaChunk * kDeltaChunk;
      delta_floats = std::max(delta_floats, static_cast<size_t>(whole * v[0] * (k[1] + v[1] + kDeltaChunk + 1)));
    }
    if (node.op != Op::attention) continue;
    const int layer = node.as<AttentionParams>().cache_layer;
    const size_t n_heads = static_cast<size_t>(graph_.info(node.in[0]).shape[0]);
    const size_t row = static_cast<size_t>((cache_.kv_layer(layer).v_dim + 3) / 4 * 4 + 4);
    partial_floats = std::max(partial_floats, n_split_tokens * n_heads * static_cast<size_t>(n_chunks(layer)) * row);
    n_counters = std::max(n_counters, n_split_tokens * n_heads);
  }
  ZINC_TRY(arena, device.allocate(std::max<size_t>(1, plan_.n_elems) * sizeof(float), "activations"));
  ZINC_TRY(best, device.allocate((n_outputs + 1) * kSampleSplits * sizeof(float), "sampling"));
  ZINC_TRY(best_id, device.allocate((n_outputs + 1) * kSampleSplits * sizeof(int), "sampling"));
  ZINC_TRY(tiles, device.allocate((n_pairs_ + 3 * n_tiles_ + 1) * sizeof(int), "experts"));
  ZINC_TRY(partial, device.allocate(partial_floats * sizeof(float), "attention"));
  ZINC_TRY(counters, device.allocate(n_counters * sizeof(int), "attention"));
  ZINC_TRY(chain_counters, device.allocate(4 * graph_.nodes().size() * kCounterBytes, "steps"));
  ZINC_TRY(prepared, device.allocate(delta_floats * sizeof(float), "chunks of the delta rule"));
  arena_ = std::move(arena);
  delta_prepared_ = std::move(prepared);
  chain_counters_ = std::move(chain_counters);
  best_ = std::move(best);
  best_id_ = std::move(best_id);
  expert_tiles_ = std::move(tiles);
  partial_ = std::move(partial);
  counters_ = std::move(counters);
  return ok_status();
}

ExpertTiles Room::expert_tiles() const {
  const Address at = expert_tiles_.address();
  return {.order = at,
          .tiles = at + n_pairs_ * sizeof(int),
          .n_tiles = at + (n_pairs_ + 3 * n_tiles_) * sizeof(int),
          .n_bytes = expert_tiles_.size()};
}

int Room::n_chunks(int layer) const {
  const int group = cache_.kv_layer(layer).group;
  const int all = (cache_.n_seen(group) + kChunkPositions - 1) / kChunkPositions;
  // A window's oldest and newest position may both lie inside a chunk.
  return cache_.window(group) > 0 ? all + 1 : std::max(1, all);
}

// Forms whose lives do not overlap share memory: first fit over places that are free when a form is made.
Status Room::place_rounded(Device& device) {
  struct Place {
    size_t offset, n_bytes;
    int last_node;
  };
  std::vector<Place> places;
  std::vector<size_t> order(fusion_.rounded_forms().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return fusion_.rounded_forms()[i].first_node; });
  rounded_offsets_.resize(order.size());
  size_t total = 0;
  for (size_t i : order) {
    const RoundedForm& form = fusion_.rounded_forms()[i];
    const size_t n_bytes = rounded_bytes(form);
    const auto free = std::ranges::find_if(
        places, [&](const Place& p) { return p.n_bytes >= n_bytes && p.last_node < form.first_node; });
    if (free != places.end()) {
      free->last_node = form.last_node;
      rounded_offsets_[i] = free->offset;
      continue;
    }
    places.push_back({total, n_bytes, form.last_node});
    rounded_offsets_[i] = total;
    total += n_bytes;
  }
  ZINC_TRY(rounded, device.allocate(total, "rounded activations"));
  rounded_ = std::move(rounded);
  return ok_status();
}

size_t Room::rounded_bytes(const RoundedForm& form) const {
  return sizes_of(form, max_rows(graph_, form, bucket_)).bytes();
}

Rounded Room::rounded(const RoundedForm& form) const {
  const size_t i = static_cast<size_t>(&form - fusion_.rounded_forms().data());
  const RoundedSizes sizes = sizes_of(form, max_rows(graph_, form, bucket_));
  const Address at = rounded_.address() + rounded_offsets_[i];
  return {.q = at,
          .scale = at + sizes.q,
          .sum = at + sizes.q + sizes.scale,
          .stride = static_cast<int>(round_up(static_cast<size_t>(form.n_in), kSegmentElems)),
          .block = form.block};
}

namespace {

// Cosine and sine of n multiples of `step` positions.
std::vector<float> turns(const std::vector<double>& frequencies, size_t n, double step, double amplitude) {
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

Result<Buffer> uploaded(Device& device, const std::vector<float>& floats) {
  ZINC_TRY(buffer, device.allocate(floats.size() * sizeof(float), "rotations"));
  if (Status s = device.write(buffer, 0, std::as_bytes(std::span(floats))); !s.ok()) return s.error();
  return std::move(buffer);
}

}  // namespace

Status Room::make_rope_tables(const VulkanWeights& weights, Device& device) {
  constexpr size_t kMostPositions = size_t{1} << 22;  // where only windows bound a sequence
  size_t n_positions = 0;
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const size_t n = static_cast<size_t>(cache_.n_pages(g)) * kPageTokens;
    n_positions = std::max(n_positions, cache_.window(g) == 0 ? n : size_t{0});
  }
  if (n_positions == 0) n_positions = kMostPositions;
  rope_table_of_.assign(graph_.nodes().size(), -1);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (node.op != Op::rope) continue;
    const RopeParams& params = node.as<RopeParams>();
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
    table.amplitude = params.amplitude;
    const size_t n_coarse = n_positions / kFinePositions + 1;
    ZINC_TRY(coarse, uploaded(device, turns(frequencies, n_coarse, kFinePositions, params.amplitude)));
    ZINC_TRY(fine, uploaded(device, turns(frequencies, kFinePositions, 1, 1)));
    table.frequencies = std::move(frequencies);
    table.coarse = std::move(coarse);
    table.fine = std::move(fine);
    rope_tables_.push_back(std::move(table));
  }
  return ok_status();
}

const RopeTable& Room::rope_table(int node) const {
  return rope_tables_[static_cast<size_t>(rope_table_of_[static_cast<size_t>(node)])];
}

}  // namespace zinc::vulkan
