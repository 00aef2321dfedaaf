#include "backend/cuda/room.h"

#include <algorithm>
#include <limits>

#include "graph/rope.h"

namespace zinc::cuda {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct RoundedSizes {
  size_t q, scale, sum, wide;
  size_t bytes() const { return q + scale + sum + wide; }
};
RoundedSizes sizes_of(const RoundedForm& form, size_t n_rows, bool is_wide) {
  const size_t stride = round_up(static_cast<size_t>(form.n_in), simt::kSegmentElems);
  const size_t n_wide = form.block == simt::kGroupElems ? stride : 2 * (stride / simt::kGroupElems);
  return {round_up(n_rows * stride, kAlign),
          round_up(n_rows * (stride / static_cast<size_t>(form.block)) * sizeof(float), kAlign),
          round_up(n_rows * (stride / simt::kGroupElems) * sizeof(int), kAlign),
          is_wide ? round_up(n_rows * n_wide * sizeof(uint16_t), kAlign) : 0};
}

size_t max_rows(const Graph& graph, const RoundedForm& form, const Bucket& bucket) {
  const ValueInfo& info = graph.info(Value{form.owner});
  const int rows = info.rows == Rows::outputs ? bucket.max_outputs : bucket.max_tokens;
  return static_cast<size_t>(rows) * static_cast<size_t>(info.shape.elems() / form.n_in);
}

constexpr FusionLimits kFusionLimits = {
    .product_parts = simt::kMaxProductParts,
    .narrow_head = simt::kSegmentElems,  // a head is a warp's
    .used = simt::kMaxUsed,
    .experts = simt::kMaxExperts,
    .row_elems = std::numeric_limits<int64_t>::max(),
    .mix_elems = std::numeric_limits<int64_t>::max(),
    .half_rows = simt::kPanelRows,
    .stream_elems = int64_t{simt::kMostStreamSegments} * simt::kWarps * simt::kSegmentElems};

FindMatrix matrices_of(const CudaWeights& weights) {
  return [&weights](const std::string& name) -> FusedMatrix {
    const DeviceMatrix* m = weights.matrix(name);
    return {m->format, m->format->rounded_block, m->matrix.n_in, m->matrix.n_out};
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
  draws = output_rows + static_cast<size_t>(bucket.max_outputs);
  first_column = draws + n_seqs * simt::kDrawInts;
  entries = first_column + static_cast<size_t>(cache.n_groups()) * n_seqs;
  n_ints = entries;
  for (int g = 0; g < cache.n_groups(); ++g) n_ints += n_seqs * static_cast<size_t>(cache.n_pages(g));
}

Room::Room(const Graph& graph, const CudaWeights& weights, const CudaCache& cache, const Bucket& bucket)
    : graph_(graph),
      cache_(cache),
      bucket_(bucket),
      fusion_(graph, matrices_of(weights), kFusionLimits, bucket.keep_values),
      plan_(plan_memory(graph, bucket.max_tokens, bucket.max_outputs, bucket.keep_values, fusion_.later_uses())),
      layout_(bucket, cache) {}

Result<std::unique_ptr<Room>> Room::take(const Graph& graph, const CudaWeights& weights, const CudaCache& cache,
                                         Device& device, const Bucket& bucket) {
  std::unique_ptr<Room> room(new Room(graph, weights, cache, bucket));
  if (Status s = room->take_buffers(device); !s.ok()) return s.error();
  if (Status s = room->take_sampling_buffers(device); !s.ok()) return s.error();
  if (Status s = room->place_rounded(device); !s.ok()) return s.error();
  if (Status s = room->make_rope_tables(weights, device); !s.ok()) return s.error();
  return room;
}

Status Room::take_buffers(Device& device) {
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
  size_t partial_floats = 0, hidden_floats = 0, delta_floats = 0, most_heads = 0, n_gates = 0;
  const size_t n_tokens = static_cast<size_t>(std::min(bucket_.max_tokens, kMaxSplitTokens));
  for (const Node& node : graph_.nodes()) {
    if (node.op == Op::hidden_in) hidden_floats = static_cast<size_t>(graph_.info(node.out[0]).shape.elems());
    if (node.op == Op::moe_route) {
      const size_t n_experts = static_cast<size_t>(graph_.info(node.in[0]).shape.elems());
      const size_t n_pairs =
          static_cast<size_t>(bucket_.max_tokens) * static_cast<size_t>(node.as<MoeRouteParams>().n_used);
      n_pairs_ = std::max(n_pairs_, n_pairs);
      const Node& router = graph_.nodes()[static_cast<size_t>(fusion_.maker(node.in[0]))];
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
    const size_t row = static_cast<size_t>(simt::partial_row(cache_.kv_layer(layer).v_dim));
    most_heads = std::max(most_heads, n_heads);
    partial_floats = std::max(partial_floats, n_tokens * n_heads * static_cast<size_t>(n_chunks(layer)) * row);
  }
  ZINC_TRY(hidden_in,
           device.allocate(hidden_floats * static_cast<size_t>(bucket_.max_tokens) * sizeof(float), "hidden states"));
  hidden_in_ = std::move(hidden_in);
  ZINC_TRY(tiles, device.allocate((n_pairs_ + 3 * n_tiles_ + 1) * sizeof(int), "experts"));
  expert_tiles_ = std::move(tiles);
  ZINC_TRY(prepared, device.allocate(delta_floats * sizeof(float), "chunks of the delta rule"));
  delta_prepared_ = std::move(prepared);
  ZINC_TRY(router, device.allocate((n_router_floats_ + n_gates) * sizeof(float), "experts"));
  router_partial_ = std::move(router);
  ZINC_TRY(counts, device.allocate(most_heads * sizeof(int), "attention"));
  attention_counts_ = std::move(counts);
  ZINC_TRY(partial, device.allocate(partial_floats * sizeof(float), "attention"));
  partial_ = std::move(partial);
  return ok_status();
}

Status Room::take_sampling_buffers(Device& device) {
  const size_t n_outputs = static_cast<size_t>(bucket_.max_outputs);
  const size_t vocab = graph_.logits() ? static_cast<size_t>(graph_.info(graph_.logits()).shape.elems()) : 0;
  const size_t n_chunks =
      static_cast<size_t>(bucket_.max_seqs) * ((vocab + simt::kSampleChunk - 1) / simt::kSampleChunk);
  const auto take = [&](Buffer& buffer, size_t n_bytes) -> Status {
    ZINC_TRY(taken, device.allocate(n_bytes, "sampling"));
    buffer = std::move(taken);
    return ok_status();
  };
  if (Status s = take(sampled_, std::max<size_t>(1, n_outputs) * sizeof(int)); !s.ok()) return s;
  if (Status s = take(best_, (n_outputs + 1) * simt::kSampleSplits * sizeof(float)); !s.ok()) return s;
  if (Status s = take(best_id_, (n_outputs + 1) * simt::kSampleSplits * sizeof(int)); !s.ok()) return s;
  if (Status s = take(chunk_best_, n_chunks * sizeof(float)); !s.ok()) return s;
  if (Status s = take(draw_chunks_, n_chunks * sizeof(int)); !s.ok()) return s;
  return take(chunk_masses_, n_chunks * sizeof(unsigned long long));
}

simt::ExpertTiles Room::expert_tiles() const {
  int* at = expert_tiles_.as<int>();
  return {.order = at, .tiles = at + n_pairs_, .n_tiles = at + n_pairs_ + 3 * n_tiles_};
}

int Room::n_chunks(int layer) const {
  const int group = cache_.kv_layer(layer).group;
  const int all = (cache_.n_seen(group) + simt::kChunkPositions - 1) / simt::kChunkPositions;
  // A window's oldest and newest position may both lie inside a chunk.
  return cache_.window(group) > 0 ? all + 1 : std::max(1, all);
}

// Forms whose lives do not overlap share memory: first fit over places that are free when a form is made.
Status Room::place_rounded(Device& device) {
  is_wide_ = device.has_warpgroups();
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
    const size_t n_bytes = sizes_of(form, max_rows(graph_, form, bucket_), is_wide_).bytes();
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

simt::Rounded Room::rounded(const RoundedForm& form) const {
  const size_t i = static_cast<size_t>(&form - fusion_.rounded_forms().data());
  const RoundedSizes sizes = sizes_of(form, max_rows(graph_, form, bucket_), is_wide_);
  std::byte* at = rounded_.as<std::byte>() + rounded_offsets_[i];
  return {.q = reinterpret_cast<signed char*>(at),
          .scale = reinterpret_cast<float*>(at + sizes.q),
          .sum = reinterpret_cast<int*>(at + sizes.q + sizes.scale),
          .wide = is_wide_ ? reinterpret_cast<unsigned short*>(at + sizes.q + sizes.scale + sizes.sum) : nullptr,
          .stride = static_cast<int>(round_up(static_cast<size_t>(form.n_in), simt::kSegmentElems))};
}

Status Room::make_rope_tables(const CudaWeights& weights, Device& device) {
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
    ZINC_TRY(on_device, device.allocate(n_pairs * sizeof(double), "rotations"));
    ZINC_TRY(angles,
             device.allocate(n_pairs * 2 * sizeof(float) * static_cast<size_t>(bucket_.max_tokens), "rotations"));
    if (Status s = device.copy_in(on_device.address(), frequencies.data(), n_pairs * sizeof(double)); !s.ok()) return s;
    if (Status s = device.wait(); !s.ok()) return s;
    table.frequencies = std::move(frequencies);
    table.amplitude = params.amplitude;
    table.device_frequencies = std::move(on_device);
    table.table = std::move(angles);
    rope_tables_.push_back(std::move(table));
  }
  return ok_status();
}

const RopeTable& Room::rope_table(int node) const {
  return rope_tables_[static_cast<size_t>(rope_table_of_[static_cast<size_t>(node)])];
}

}  // namespace zinc::cuda
