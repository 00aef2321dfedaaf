// Lowering of the ops that mix rows: attention, experts, recurrent states, sampling.
#include <algorithm>

#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

HeadPart Lowering::head_part(const HeadChain& chain) const {
  HeadPart part{};
  if (!chain.x) return part;
  part.x = room_.at(chain.x);
  if (chain.slice >= 0) {
    part.x += static_cast<size_t>(node(chain.slice).as<SliceParams>().begin) * sizeof(float);
    part.stride = static_cast<int>(inner(chain.x));
  }
  if (chain.norm >= 0) {
    part.is_normed = 1;
    part.norm_weight = vector(node(chain.norm).in[1]);
    part.eps = node(chain.norm).as<NormParams>().eps;
  }
  if (chain.rope >= 0) part.turns = turns_of(chain.rope);
  return part;
}

// What becomes of q, k and v on their way; where nothing is fused, keys and values as they are.
void Lowering::fill_heads(int attention, HeadPart (&parts)[3], Touched& touched) const {
  const Node& n = node(attention);
  const HeadGroup* group = room_.fusion().heads_of(attention);
  for (size_t i = 0; i < 3; ++i) {
    const HeadChain chain = group ? group->parts[i] : i == 0 ? HeadChain{} : HeadChain{.x = n.in[i]};
    if (!chain.x) continue;
    parts[i] = head_part(chain);
    parts[i].dim = static_cast<int>(inner(n.in[i]));
    if (parts[i].stride == 0) parts[i].stride = parts[i].dim;
    parts[i].n_heads = static_cast<int>(width(n.in[i])) / parts[i].dim;
    touched.reads.push_back(all(chain.x));
  }
}

int Lowering::head_eights(int attention) const {
  const Node& n = node(attention);
  int64_t dim = inner(n.in[0]);
  if (n.in[2]) dim = std::max(dim, inner(n.in[2]));
  return static_cast<int>(div_up(dim, kSegmentElems));
}

Status Lowering::lower_heads(int attention, const KvLayer& kv) {
  const Node& n = node(attention);
  HeadsBlock block{};
  Touched touched;
  block.kv = kv;
  block.n_rows = n_rows(n.in[0]);
  block.q_out = room_.at(n.in[0]);
  fill_heads(attention, block.parts, touched);
  HeadPart& q = block.parts[0];
  if (q.x && !q.is_normed && !q.turns.coarse) q = {};  // as it should be
  if (q.x) touched.writes.push_back(all(n.in[0]));
  const Buffer& pages = cache_.pages(n.as<AttentionParams>().cache_layer);
  touched.writes.push_back({pages.address(), pages.size()});
  int64_t n_heads = 0;
  for (const HeadPart& part : block.parts) n_heads += part.n_heads;
  const int eights = head_eights(attention);
  return emit({"heads", {{16, cache_.kv_kind()}, {17, eights}, {18, kWarps * eights * kSegmentElems}}}, block,
              {div_up(int64_t{sizes_.max_tokens} * n_heads, kWarps)}, touched);
}

// Steps of one token: one dispatch, with the gate of the result.
Status Lowering::lower_attend_one(const HeadGroup& group) {
  const int i = group.attention;
  AttentionBlock block{};
  Touched touched;
  const Buffer& pages = cache_.pages(node(i).as<AttentionParams>().cache_layer);
  fill_heads(i, block.parts, touched);
  touched.writes.push_back({pages.address(), pages.size()});
  Value out = node(i).out[0];
  if (group.act >= 0) {
    const HeadPart gate = head_part(group.gate);
    block.gate = gate.x;
    block.gate_stride = gate.stride > 0 ? gate.stride : static_cast<int>(width(out) / info(node(i).in[0]).shape[0]);
    block.gate_act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    touched.reads.push_back(all(group.gate.x));
    out = node(group.act).out[0];
  }
  block.out = room_.at(out);
  touched.writes.push_back(all(out));
  return emit_attention(i, block, touched, true);
}

Status Lowering::lower_attention(int i) {
  const Node& n = node(i);
  if (Status s = lower_heads(i, cache_.kv_layer(n.as<AttentionParams>().cache_layer)); !s.ok()) return s;
  AttentionBlock block{};
  Touched touched{{all(n.in[0])}, {all(n.out[0])}};
  block.out = room_.at(n.out[0]);
  return emit_attention(i, block, touched, false);
}

Status Lowering::emit_attention(int i, AttentionBlock& block, Touched& touched, bool is_fused) {
  const Node& n = node(i);
  const AttentionParams& attention = n.as<AttentionParams>();
  const KvLayer kv = cache_.kv_layer(attention.cache_layer);
  const Buffer& pages = cache_.pages(attention.cache_layer);
  touched.reads.push_back({pages.address(), pages.size()});
  block.kv = kv;
  block.q = room_.at(n.in[0]);
  block.sinks = vector(n.in[3]);
  block.n_rows = n_rows(n.in[0]);
  block.n_heads = static_cast<int>(info(n.in[0]).shape[0]);
  block.scale = attention.scale;
  block.softcap = attention.softcap;
  block.window = static_cast<int>(attention.window);
  block.n_chunks = room_.n_chunks(attention.cache_layer);
  block.partial = room_.attention_partial().address();
  block.counters = room_.attention_counters().address();
  const bool is_split = sizes_.max_tokens <= kMaxSplitTokens;
  if (is_split) {
    touched.writes.push_back({block.partial, room_.attention_partial().size()});
    touched.writes.push_back({block.counters, room_.attention_counters().size()});
  }
  ZINC_TRY(shape, attention_shape(device_.capabilities(), {.k_dim = kv.k_dim,
                                                           .v_dim = kv.v_dim,
                                                           .kv_kind = cache_.kv_kind(),
                                                           .head_eights = head_eights(i),
                                                           .is_split = is_split,
                                                           .is_fused = is_fused}));
  const int group_heads = block.n_heads / kv.kv_heads;
  block.heads_per_tile = std::min(group_heads, shape.rows);
  block.tokens_per_tile = is_split ? 1 : std::max(1, shape.rows / block.heads_per_tile);
  shape.key.constants.insert(
      shape.key.constants.end(),
      {{3, is_fused ? 1 : 0}, {17, head_eights(i)}, {20, kv.k_dim % 4 == 0 && kv.v_dim % 4 == 0 ? 0 : 1}});
  const int64_t n_tiles = kv.kv_heads * div_up(group_heads, block.heads_per_tile);
  const int64_t wanted = std::max<int64_t>(1, device_.tuning().attention_groups / n_tiles);
  const int64_t n_splits = is_split ? std::min<int64_t>(wanted, block.n_chunks) : 1;
  touched.n_counted = n_tiles;
  // A layer without keys of its own reads what another dispatch of the step wrote, from pages: behind a barrier.
  const bool is_chained = is_fused && block.parts[1].x != 0;
  return emit(is_chained ? chained(shape.key, n_tiles * n_splits) : shape.key, block,
              {n_tiles, div_up(sizes_.max_tokens, block.tokens_per_tile), n_splits}, touched);
}

Result<AttentionShape> attention_shape(const Capabilities& device, const AttentionSize& size) {
  const int k_dim = static_cast<int>(div_up(size.k_dim, 32) * 32),
            v_dim = static_cast<int>(div_up(size.v_dim, 32) * 32);
  constexpr int kFixed = 2048;  // exchanges between subgroups and the like
  const int fused_floats = kWarps * size.head_eights * kSegmentElems, head_floats = size.is_fused ? fused_floats : 1;
  const auto float_bytes = [&](int rows) {
    return 4 * rows * (k_dim + v_dim + kChunkPositions) + 16 * kWarps * 32 * std::min(rows, 4);
  };
  const auto matrix_bytes = [&](int rows) {
    constexpr int kKeyRoom = 5 * kPagePositions * kWarps;  // sixteens of bytes: shader/attention_matrices.comp
    return 16 * (rows * (k_dim / 8 + 1) + std::max(kKeyRoom, rows * (std::max(kChunkPositions, v_dim) / 4 + 1)));
  };
  const auto fits = [&](int bytes, int floats) {
    return static_cast<size_t>(bytes + 4 * floats + kFixed) <= device.shared_bytes;
  };
  const auto shape = [&](std::string_view module, int rows) {
    return AttentionShape{
        {std::string(module),
         {{1, rows}, {2, size.is_split ? 1 : 0}, {4, k_dim}, {5, v_dim}, {16, size.kv_kind}, {18, head_floats}}},
        rows};
  };
  const bool on_matrices = device.has_half_matrices && size.kv_kind == kKvF16 && v_dim <= kMaxMatrixValues &&
                           fits(matrix_bytes(16), fused_floats);  // in steps of one token too
  if (on_matrices) {
    return shape("attention_matrices", size.is_split || !fits(matrix_bytes(32), head_floats) ? 16 : 32);
  }
  int rows = size.is_split ? 2 : 8;  // two rows a workgroup keep a step of few tokens short
  while (rows > 1 && !fits(float_bytes(rows), head_floats)) rows /= 2;
  if (fits(float_bytes(rows), head_floats)) return shape("attention", rows);
  return fail(ErrorCode::unsupported, "{} has {} bytes of shared memory; attention with heads of {} needs {}",
              device.name, device.shared_bytes, size.k_dim, float_bytes(rows) + 4 * head_floats + kFixed);
}

Route Lowering::route_of(int i) const {
  const Node& n = node(i);
  const MoeRouteParams& route = n.as<MoeRouteParams>();
  return {.logits = room_.at(n.in[0]),
          .ids = room_.at(n.out[0]),
          .weights = room_.at(n.out[1]),
          .n_experts = static_cast<int>(width(n.in[0])),
          .n_used = static_cast<int>(route.n_used),
          .mode = static_cast<int>(route.weights),
          .scale = route.scale};
}

Status Lowering::lower_moe_route(int i) {
  const Node& n = node(i);
  const RouteBlock block{.route = route_of(i), .n_rows = n_rows(n.in[0])};
  const Route& route = block.route;
  if (route.n_experts > kMaxExperts || route.n_used > kMaxUsed) {
    return fail(ErrorCode::unsupported,
                "the vulkan backend's {} takes up to {} experts and uses {}; this model has {}, {}", op_name(n.op),
                kMaxExperts, kMaxUsed, route.n_experts, route.n_used);
  }
  if (Status s = emit({"route", {{7, static_cast<int>(div_up(route.n_experts, 32) * 32)}}}, block, {max_rows(n.in[0])},
                      {{all(n.in[0])}, {all(n.out[0]), all(n.out[1])}});
      !s.ok()) {
    return s;
  }
  if (max_rows(n.in[0]) <= kMaxSplitTokens) return ok_status();
  const ExpertTiles tiles = room_.expert_tiles();
  const GroupPairsBlock pairs{.ids = route.ids,
                              .order = tiles.order,
                              .tiles = tiles.tiles,
                              .n_tiles = tiles.n_tiles,
                              .n_rows = block.n_rows,
                              .n_used = route.n_used,
                              .n_experts = route.n_experts,
                              .tile_rows = room_.tile_rows()};
  return emit({"group_pairs", {}}, pairs, {1}, {{all(n.out[0])}, {{tiles.order, tiles.n_bytes}}});
}

Status Lowering::lower_moe_combine(int i) { return lower_combine(i, -1); }

Status Lowering::lower_combine(int combine, int add) {
  const Node& n = node(combine);
  const Value out = add < 0 ? n.out[0] : node(add).out[0];
  CombineBlock block{.x = room_.at(n.in[0]),
                     .weights = room_.at(n.in[1]),
                     .added = 0,
                     .out = room_.at(out),
                     .n_rows = n_rows(out),
                     .n_used = static_cast<int>(width(n.in[1])),
                     .dim = static_cast<int>(width(out))};
  Touched touched{{all(n.in[0]), all(n.in[1])}, {all(out)}};
  if (add >= 0) {
    const Value other = other_operand(add, n.out[0]);
    block.added = room_.at(other);
    touched.reads.push_back(all(other));
  }
  return emit({"combine", {}}, block, flat(int64_t{max_rows(out)} * block.dim), touched);
}

ConvBlock Lowering::conv_block(const Node& n) const {
  return {.x = room_.at(n.in[0]),
          .weight = vector(n.in[1]),
          .out = room_.at(n.out[0]),
          .states = cache_.conv_states(n.as<ShortConvParams>().cache_layer),
          .slot_bytes = cache_.state_bytes(),
          .n_channels = static_cast<int>(width(n.in[0])),
          .n_taps = static_cast<int>(width(n.in[1]) / width(n.in[0]))};
}

Status Lowering::check_recurrence(const ConvBlock& conv) const {
  if (conv.n_taps <= kMaxTaps) return ok_status();
  return fail(ErrorCode::unsupported, "the vulkan backend's {} has up to {} taps; this model has {}",
              op_name(Op::short_conv), kMaxTaps, conv.n_taps);
}

Status Lowering::check_recurrence(const DeltaBlock& delta) const {
  if (delta.k_dim <= 256) return ok_status();
  return fail(ErrorCode::unsupported, "the vulkan backend's {} takes keys of up to 256 numbers; this model has {}",
              op_name(Op::delta_net), delta.k_dim);
}

Status Lowering::lower_short_conv(int i) {
  const Node& n = node(i);
  const ConvBlock block = conv_block(n);
  if (Status s = check_recurrence(block); !s.ok()) return s;
  return emit({"conv", {}}, block,
              {div_up(block.n_channels, kThreads), max_runs(), div_up(sizes_.max_tokens, kConvTokens)},
              {{all(n.in[0])}, {all(n.out[0]), {block.states, 1}}});
}

DeltaBlock Lowering::delta_block(const Node& n) const {
  const DeltaNetParams& delta = n.as<DeltaNetParams>();
  return {.q = room_.at(n.in[0]),
          .k = room_.at(n.in[1]),
          .v = room_.at(n.in[2]),
          .alpha = room_.at(n.in[3]),
          .beta = room_.at(n.in[4]),
          .dt_bias = vector(n.in[5]),
          .a = vector(n.in[6]),
          .out = room_.at(n.out[0]),
          .states = cache_.delta_states(delta.cache_layer),
          .slot_bytes = cache_.state_bytes(),
          .k_heads = static_cast<int>(info(n.in[1]).shape[0]),
          .v_heads = static_cast<int>(info(n.in[2]).shape[0]),
          .k_dim = static_cast<int>(info(n.in[1]).shape[1]),
          .v_dim = static_cast<int>(info(n.in[2]).shape[1]),
          .is_cyclic = delta.sharing == HeadSharing::cyclic ? 1 : 0,
          .q_scale = delta.q_scale};
}

namespace {

int rows_of_state(const DeltaBlock& delta) {  // of a thread
  int rows = 4;
  while (rows * 8 < delta.k_dim) rows *= 2;
  return rows;
}

}  // namespace

// Whole chunks of a run together, what is before and after them token by token; all of a short step's.
Status Lowering::lower_delta_net(int i) {
  const Node& n = node(i);
  DeltaChunksBlock block{.delta = delta_block(n), .prepared = 0, .part = kBeforeChunks, .unused = 0};
  if (Status s = check_recurrence(block.delta); !s.ok()) return s;
  const Touched touched{{all(n.in[0]), all(n.in[1]), all(n.in[2]), all(n.in[3]), all(n.in[4])},
                        {all(n.out[0]), {block.delta.states, 1}}};
  const bool has_chunks =
      sizes_.max_tokens >= kDeltaChunk && std::max(block.delta.k_dim, block.delta.v_dim) <= kMaxDeltaDim;
  return has_chunks ? lower_delta_chunks(block, touched) : lower_delta_tokens(block, kBeforeChunks, touched);
}

Status Lowering::lower_delta_tokens(DeltaChunksBlock& block, DeltaPart part, const Touched& touched) {
  block.part = part;
  const DeltaBlock& delta = block.delta;
  return emit({"delta", {{1, rows_of_state(delta)}}}, block, {div_up(delta.v_dim, 32), delta.v_heads, max_runs()},
              touched);
}

Status Lowering::lower_delta_chunks(DeltaChunksBlock& block, const Touched& touched) {
  constexpr size_t kWideBytes = 44 * 1024;  // of delta_chunks.comp with 32 columns
  const DeltaBlock& delta = block.delta;
  const Touch prepared{room_.delta_prepared().address(), room_.delta_prepared().size()};
  const int columns = device_.capabilities().shared_bytes >= kWideBytes ? 32 : 16;
  block.prepared = prepared.begin;
  if (Status s = lower_delta_tokens(block, kBeforeChunks, touched); !s.ok()) return s;
  if (Status s = emit({"delta_prepare", {}}, block, {sizes_.max_tokens / kDeltaChunk, delta.v_heads},
                      {touched.reads, {prepared}});
      !s.ok()) {
    return s;
  }
  Touched chunks = touched;
  chunks.reads.push_back(prepared);
  if (Status s = emit({"delta_chunks", {{2, columns}}}, block,
                      {div_up(delta.v_dim, columns), delta.v_heads, max_runs()}, chunks);
      !s.ok()) {
    return s;
  }
  return lower_delta_tokens(block, kAfterChunks, touched);
}

Status Lowering::lower_delta_one(const DeltaGroup& group) {
  const Node &delta = node(group.delta), &conv = node(group.conv);
  const DeltaOneBlock block{.chain = {},
                            .delta = delta_block(delta),
                            .conv = conv_block(conv),
                            .eps = node(group.q_norm).as<NormParams>().eps};
  if (Status s = check_recurrence(block.conv); !s.ok()) return s;
  if (Status s = check_recurrence(block.delta); !s.ok()) return s;
  const Size grid{div_up(block.delta.v_dim, 32), block.delta.v_heads};
  return emit(chained({"delta_one", {{1, rows_of_state(block.delta)}, {2, block.conv.n_taps}}}, grid.x * grid.y), block,
              grid,
              {{all(conv.in[0]), all(delta.in[3]), all(delta.in[4])},
               {all(delta.out[0]), {block.delta.states, 1}, {block.conv.states, 1}}});
}

Status Lowering::lower_sample(int i) {
  const Node& n = node(i);
  const SampleBlock block{.logits = room_.at(n.in[0]),
                          .best = room_.best().address(),
                          .best_id = room_.best_id().address(),
                          .vocab = static_cast<int>(width(n.in[0]))};
  const Touch best{block.best, room_.best().size()};
  if (Status s = emit({"sample", {{1, 1}}}, block, {kSampleSplits, sizes_.max_outputs}, {{all(n.in[0])}, {best}});
      !s.ok()) {
    return s;
  }
  return emit({"sample", {{1, 0}}}, block, {1, sizes_.max_outputs}, {{best}, {{cache_.last_sampled(), sizeof(int)}}});
}

}  // namespace zinc::vulkan
