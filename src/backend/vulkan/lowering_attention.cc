// Lowering of attention, MoE routing, recurrent layers and sampling.
#include <algorithm>

#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

int Lowering::n_head_segments(const Node& n) const {
  int64_t dim = inner(n.in[0]);
  if (n.in[2]) dim = std::max(dim, inner(n.in[2]));
  return static_cast<int>(ceil_div(dim, kSegmentElems));
}

// Without fused inputs only keys and values, unchanged.
Status Lowering::lower_attention_inputs(const gpu::AttentionCall& call) {
  const Node& n = *call.node;
  const int layer = n.as<AttentionParams>().cache_layer;
  const gpu::AttentionInputs unchanged = {gpu::AttentionInput{}, {.x = n.in[1]}, {.x = n.in[2]}};
  shader::QkNormRopeParams params{};
  Accesses accesses;
  params.kv = cache_.kv_layer(layer);
  params.n_rows = n_rows(n.in[0]);
  params.q_out = workspace_.address(n.in[0]);
  fill_heads(n, call.inputs ? *call.inputs : unchanged, params.parts, accesses);
  HeadInput& q = params.parts[kQuery];
  if (q.x && !q.is_normed && !q.rope.coarse) q = {};  // unchanged queries need no dispatch
  if (q.x) accesses.writes.push_back(range_of(n.in[0]));
  const Buffer& pages = cache_.pages(layer);
  accesses.writes.push_back({pages.address(), pages.size()});
  int64_t n_heads = 0;
  for (const HeadInput& part : params.parts) n_heads += part.n_heads;
  const int head_segments = n_head_segments(n);
  return emit(with_counter_sync(
                  {fmt::format("qk_norm_rope.{}", cache_.kv_format().name),
                   {{kSpecHeadSegments, head_segments}, {kSpecHeadFloats, kWarps * head_segments * kSegmentElems}}}),
              params, {ceil_div(int64_t{sizes_.max_tokens} * n_heads, kWarps)}, accesses);
}

// Decode: norms, RoPE, KV cache update, attention and output gate in one dispatch.
Status Lowering::lower(const gpu::AttentionDecodeCall& call) {
  const Node& n = *call.node;
  shader::AttentionParams params{};
  Accesses accesses;
  const Buffer& pages = cache_.pages(n.as<AttentionParams>().cache_layer);
  fill_heads(n, call.inputs, params.parts, accesses);
  accesses.writes.push_back({pages.address(), pages.size()});
  if (call.act) {
    params.gate = slice_of(call.gate);
    params.gate_stride = static_cast<int>(width(call.gate.x) / info(n.in[0]).shape[0]);
    params.gate_act = act_of(*call.act);
    accesses.reads.push_back(range_of(call.gate.x));
  }
  params.out = workspace_.address(call.out());
  accesses.writes.push_back(range_of(call.out()));
  return emit_attention(n, params, accesses, true);
}

Status Lowering::lower(const gpu::AttentionCall& call) {
  const Node& n = *call.node;
  if (Status s = lower_attention_inputs(call); !s.ok()) return s;
  shader::AttentionParams params{};
  Accesses accesses{{range_of(n.in[0])}, {range_of(n.out[0])}};
  params.out = workspace_.address(n.out[0]);
  return emit_attention(n, params, accesses, false);
}

Status Lowering::emit_attention(const Node& n, shader::AttentionParams& params, Accesses& accesses, bool is_fused) {
  const int layer = n.as<AttentionParams>().cache_layer;
  const KvLayer kv = cache_.kv_layer(layer);
  const Buffer& pages = cache_.pages(layer);
  accesses.reads.push_back({pages.address(), pages.size()});
  fill_attention(n, params);
  params.kv = kv;
  params.n_rows = n_rows(n.in[0]);
  params.partial = workspace_.attention_partial().address();
  params.done_counters = workspace_.attention_done_counters().address();
  const bool has_units = !workspace_.layout().attention.empty();
  const bool is_split = sizes_.max_tokens <= kMaxSplitTokens && !has_units;
  if (has_units) {
    const gpu::UploadLayout::GroupUnits& group = workspace_.layout().attention[static_cast<size_t>(kv.group)];
    params.units = static_cast<int>(group.units);
    params.n_units = static_cast<int>(group.n_units);
    params.prefill_tokens = static_cast<int>(group.prefill_tokens);
    params.max_units = group.limits.max_units;
  }
  if (is_split || has_units) {
    accesses.writes.push_back({params.partial, workspace_.attention_partial().size()});
    accesses.writes.push_back({params.done_counters, workspace_.attention_done_counters().size()});
  }
  ZINC_TRY(shape, attention_shape(device_, {.k_dim = kv.k_dim,
                                            .v_dim = kv.v_dim,
                                            .kv_format = cache_.kv_format().name,
                                            .n_head_segments = n_head_segments(n),
                                            .is_split = is_split,
                                            .has_units = has_units,
                                            .is_fused = is_fused}));
  const int heads_per_kv_head = params.n_heads / kv.kv_heads;
  params.heads_per_tile = std::min(heads_per_kv_head, shape.rows);
  params.tokens_per_tile = is_split ? 1 : std::max(1, shape.rows / params.heads_per_tile);
  shape.key.constants.insert(shape.key.constants.end(),
                             {{kSpecAttentionUnits, has_units ? 1 : 0},
                              {kSpecAttentionFused, is_fused ? 1 : 0},
                              {kSpecHeadSegments, n_head_segments(n)},
                              {kSpecUnalignedRows, kv.k_dim % 4 == 0 && kv.v_dim % 4 == 0 ? 0 : 1}});
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile);
  const int64_t target_splits = std::max<int64_t>(1, tuning_of(device_).attention_workgroups / n_tiles);
  const int64_t n_splits = is_split ? std::min<int64_t>(target_splits, params.n_chunks) : 1;
  const bool has_tiles = !has_units || gpu::has_prefill_rows(sizes_);  // else every row has units
  const int64_t n_token_tiles = has_tiles ? ceil_div(sizes_.max_tokens, params.tokens_per_tile) : 0;
  const Size grid{n_tiles, params.max_units + n_token_tiles, n_splits};
  if (!is_fused) return emit(with_counter_sync(shape.key, kSignals), params, grid, accesses);  // it reads new pages
  // A layer that shares another layer's KV cache reads pages written by another dispatch of the step: needs a barrier.
  const bool uses_counter_sync = params.parts[kKey].x != 0;
  return emit(uses_counter_sync ? with_warm_up(shape.key, n_tiles * n_splits) : shape.key, params, grid, accesses,
              n_tiles);
}

Result<AttentionShape> attention_shape(const Capabilities& device, const AttentionSize& size) {
  const int k_dim = static_cast<int>(ceil_div(size.k_dim, 32) * 32),
            v_dim = static_cast<int>(ceil_div(size.v_dim, 32) * 32);
  constexpr int kOtherBytes = 2048;  // subgroup exchange buffers and similar
  const int fused_floats = kWarps * size.n_head_segments * kSegmentElems,
            head_floats = size.is_fused ? fused_floats : 1;
  const auto float_bytes = [&](int rows) {
    return 4 * rows * (k_dim + v_dim + kChunkPositions) + 16 * kWarps * 32 * std::min(rows, 4);
  };
  const auto coopmat_bytes = [&](int rows) {
    constexpr int kKeyTileQuads = 5 * kPageTokens * kWarps;  // in 16 bytes: shader/attention_coopmat.comp
    return 16 * (rows * (k_dim / 8 + 1) + std::max(kKeyTileQuads, rows * (std::max(kChunkPositions, v_dim) / 4 + 1)));
  };
  const auto fits = [&](int bytes, int floats) {
    return static_cast<size_t>(bytes + 4 * floats + kOtherBytes) <= device.shared_bytes;
  };
  const auto shape = [&](std::string_view module, int rows) {
    return AttentionShape{{fmt::format("{}.{}", module, size.kv_format),
                           {{kSpecAttentionRows, rows},
                            {kSpecAttentionSplitKv, size.is_split ? 1 : 0},
                            {kSpecAttentionKeyDim, k_dim},
                            {kSpecAttentionValueDim, v_dim},
                            {kSpecHeadFloats, head_floats}}},
                          rows};
  };
  const bool uses_coopmat = device.has_coopmat_f16 && size.kv_format == "f16" && v_dim <= kMaxCoopmatValueDim &&
                            fits(coopmat_bytes(16), fused_floats);  // decode too
  if (uses_coopmat) {
    const bool is_tile_of_one = size.is_split || size.has_units;
    return shape("attention_coopmat", is_tile_of_one || !fits(coopmat_bytes(32), head_floats) ? 16 : 32);
  }
  int rows = size.is_split ? 2 : size.has_units ? 4 : 8;  // few rows per workgroup keep the latency of small steps low
  while (rows > 1 && !fits(float_bytes(rows), head_floats)) rows /= 2;
  if (fits(float_bytes(rows), head_floats)) return shape("attention", rows);
  return fail(ErrorCode::unsupported, "{} has {} bytes of shared memory; attention with heads of dimension {} needs {}",
              device.name, device.shared_bytes, size.k_dim, float_bytes(rows) + 4 * head_floats + kOtherBytes);
}

Route Lowering::route_of(const Node& n) const {
  const MoeRouteParams& route = n.as<MoeRouteParams>();
  return {.logits = workspace_.address(n.in[0]),
          .ids = workspace_.address(n.out[0]),
          .weights = workspace_.address(n.out[1]),
          .n_experts = static_cast<int>(width(n.in[0])),
          .n_experts_used = static_cast<int>(route.n_used),
          .mode = static_cast<int>(route.weights),
          .scale = route.scale};
}

Status Lowering::lower(const gpu::RouteCall& call) {
  const Node& n = *call.node;
  shader::RouteParams params{.sync = {},
                             .route = route_of(n),
                             .tiles = {},
                             .n_done = workspace_.routed_workgroups().address(),
                             .n_rows = n_rows(n.in[0])};
  const Route& route = params.route;
  if (route.n_experts > kMaxExperts || route.n_experts_used > kMaxExpertsUsed) {
    return fail(ErrorCode::unsupported, "{}: {} supports up to {} experts, {} per token; this model has {} and {}",
                device_.name, op_name(n.op), kMaxExperts, kMaxExpertsUsed, route.n_experts, route.n_experts_used);
  }
  const int capacity = static_cast<int>(ceil_div(route.n_experts, 32) * 32);
  Accesses accesses{{range_of(n.in[0])}, {range_of(n.out[0]), range_of(n.out[1])}};
  if (max_rows(n.in[0]) > kMaxSplitTokens) {
    const gpu::ExpertTiles tiles = workspace_.expert_tiles();
    params.tiles = {.sorted_pairs = tiles.sorted_pairs,
                    .tiles = tiles.tiles,
                    .n_tiles = tiles.n_tiles,
                    .tile_rows = workspace_.expert_tile_rows(),
                    .unused = 0};
    accesses.writes.push_back({tiles.sorted_pairs, tiles.n_bytes});
  }
  return emit(with_counter_sync({"moe_route", {{kSpecRouteCapacity, capacity}}}), params, {max_rows(n.in[0])},
              accesses);
}

shader::ConvParams Lowering::conv_params(const Node& n) const {
  shader::ConvParams params{};
  params.slot_bytes = cache_.slot_bytes(n.as<ShortConvParams>().cache_layer);
  fill_conv(n, params);
  return params;
}

Status Lowering::lower(const gpu::ShortConvCall& call) {
  const Node& n = *call.node;
  const shader::ShortConvParams params{.sync = {}, .conv = conv_params(n)};
  const shader::ConvParams& conv = params.conv;
  if (Status s = check_conv(conv); !s.ok()) return s;
  return emit(with_counter_sync({"short_conv", {}}), params,
              {ceil_div(conv.n_channels, kThreads), max_active_seqs(), ceil_div(sizes_.max_tokens, kConvTokens)},
              {{range_of(n.in[0])}, {range_of(n.out[0]), {conv.states, 1}}});
}

shader::DeltaParams Lowering::delta_params(const Node& n) const {
  shader::DeltaParams params{};
  params.slot_bytes = cache_.slot_bytes(n.as<DeltaNetParams>().cache_layer);
  fill_delta(n, params);
  return params;
}

namespace {

int state_rows_per_thread(const shader::DeltaParams& delta) {  // per thread
  int rows = 4;
  while (rows * 8 < delta.k_dim) rows *= 2;
  return rows;
}

}  // namespace

// Whole chunks by the chunked scan, tokens before and after them one by one; short steps token by token only.
Status Lowering::lower(const gpu::DeltaNetCall& call) {
  const Node& n = *call.node;
  shader::DeltaChunksParams params{
      .sync = {}, .delta = delta_params(n), .prepared = 0, .part = kBeforeChunks, .unused = 0};
  if (Status s = check_delta(params.delta); !s.ok()) return s;
  Accesses accesses{{range_of(n.in[3]), range_of(n.in[4])}, {range_of(n.out[0]), {params.delta.states, 1}}};
  accesses.reads.insert(accesses.reads.end(), {range_of(n.in[0]), range_of(n.in[1]), range_of(n.in[2])});
  const bool has_chunks =
      sizes_.max_tokens >= kDeltaChunk && std::max(params.delta.k_dim, params.delta.v_dim) <= kMaxDeltaDim;
  return has_chunks ? lower_delta_chunks(params, accesses) : lower_delta_tokens(params, kBeforeChunks, accesses);
}

Status Lowering::lower_delta_tokens(shader::DeltaChunksParams& params, DeltaTokens part, const Accesses& accesses) {
  params.part = part;
  const shader::DeltaParams& delta = params.delta;
  return emit(with_counter_sync({"delta_recurrent", {{kSpecDeltaStateRows, state_rows_per_thread(delta)}}}), params,
              {ceil_div(delta.v_dim, 32), delta.v_heads, max_active_seqs()}, accesses);
}

Status Lowering::lower_delta_chunks(shader::DeltaChunksParams& params, const Accesses& accesses) {
  constexpr size_t kWideSharedBytes = 44 * 1024;  // shared memory of delta_chunks.comp with 32 columns
  const shader::DeltaParams& delta = params.delta;
  const MemoryRange prepared{workspace_.delta_prepared().address(), workspace_.delta_prepared().size()};
  const int columns = device_.shared_bytes >= kWideSharedBytes ? 32 : 16;
  params.prepared = prepared.begin;
  if (Status s = lower_delta_tokens(params, kBeforeChunks, accesses); !s.ok()) return s;
  if (Status s = emit({"delta_prepare", {}}, params, {sizes_.max_tokens / kDeltaChunk, delta.v_heads},
                      {accesses.reads, {prepared}});
      !s.ok()) {
    return s;
  }
  Accesses chunks = accesses;
  chunks.reads.push_back(prepared);
  if (Status s = emit({"delta_chunks", {{kSpecDeltaChunkColumns, columns}}}, params,
                      {ceil_div(delta.v_dim, columns), delta.v_heads, max_active_seqs()}, chunks);
      !s.ok()) {
    return s;
  }
  return lower_delta_tokens(params, kAfterChunks, accesses);
}

Status Lowering::lower(const gpu::DeltaDecodeCall& call) {
  const Node &delta = *call.delta, &conv = *call.conv;
  const shader::DeltaDecodeParams params{
      .sync = {}, .delta = delta_params(delta), .conv = conv_params(conv), .eps = call.q_norm->as<NormParams>().eps};
  if (Status s = check_conv(params.conv); !s.ok()) return s;
  if (Status s = check_delta(params.delta); !s.ok()) return s;
  const Size grid{ceil_div(params.delta.v_dim, 32), params.delta.v_heads};
  return emit(with_warm_up({"delta_decode",
                            {{kSpecDeltaStateRows, state_rows_per_thread(params.delta)},
                             {kSpecDeltaDecodeTaps, params.conv.n_taps}}},
                           grid.x * grid.y),
              params, grid,
              {{range_of(conv.in[0]), range_of(delta.in[3]), range_of(delta.in[4])},
               {range_of(delta.out[0]), {params.delta.states, 1}, {params.conv.states, 1}}});
}

// Steps without chunks: KernelLimits::has_delta_layers.
Status Lowering::lower(const gpu::DeltaLayerCall& call) {
  const Node &delta = *call.rule.delta, &conv = *call.rule.conv;
  const shader::DeltaDecodeParams params{.sync = {},
                                         .delta = delta_params(delta),
                                         .conv = conv_params(conv),
                                         .eps = call.rule.q_norm->as<NormParams>().eps};
  if (Status s = check_conv(params.conv); !s.ok()) return s;
  if (Status s = check_delta(params.delta); !s.ok()) return s;
  constexpr size_t kVec4Bytes = 16;
  const int state_rows = state_rows_per_thread(params.delta);
  const bool has_exact_dims = params.delta.k_dim == 8 * state_rows && params.delta.v_dim % kDeltaLayerColumns == 0 &&
                              params.delta.slot_bytes % kVec4Bytes == 0 && params.delta.states % kVec4Bytes == 0;
  if (Status s =
          emit(with_counter_sync({"delta_layer",
                                  {{kSpecDeltaStateRows, state_rows},
                                   {kSpecDeltaDecodeTaps, params.conv.n_taps},
                                   {kSpecDeltaValueDim, params.delta.v_dim},
                                   {kSpecUnalignedRows, has_exact_dims ? 0 : 1}}}),
               params, {ceil_div(params.delta.v_dim, kDeltaLayerColumns) * params.delta.v_heads, max_active_seqs()},
               {{range_of(conv.in[0]), range_of(delta.in[3]), range_of(delta.in[4]), {params.conv.states, 1}},
                {range_of(delta.out[0]), {params.delta.states, 1}}});
      !s.ok()) {
    return s;
  }
  return lower_delta_finish(call, params.conv);
}

Status Lowering::lower_delta_finish(const gpu::DeltaLayerCall& call, const shader::ConvParams& conv) {
  shader::DeltaFinishParams params{};
  Accesses accesses{{range_of(call.rule.conv->in[0]), range_of(call.rule.delta->out[0])}, {{conv.states, 1}}};
  params.conv = conv;
  if (call.gate) {
    const Value x = call.rule.delta->out[0], gate = call.gate->in[0];
    params.x = at(x);
    params.gate = at(gate);
    params.norm_weight = vector(call.norm->in[1]);
    params.n_rows = n_rows(x);
    params.width = static_cast<int>(width(x));
    params.head_dim = static_cast<int>(inner(x));
    params.act = act_of(*call.gate);
    params.norm_eps = call.norm->as<NormParams>().eps;
    accesses.reads.push_back(range_of(gate));
    fill_output(call.out, params, accesses);
    params.n_norm_workgroups = static_cast<int>(ceil_div(max_rows(x) * ceil_div(params.width, kSegmentElems), kWarps));
  }
  const int64_t n_state_workgroups = max_active_seqs() * ceil_div(conv.n_channels, kFinishChannels);
  return emit(with_counter_sync({"delta_finish", {}}), params, {params.n_norm_workgroups + n_state_workgroups},
              accesses);
}

Status Lowering::lower(const gpu::SampleCall& call) {
  const Node& n = *call.node;
  const shader::SampleParams params{.logits = workspace_.address(n.in[0]),
                                    .best = workspace_.best().address(),
                                    .best_id = workspace_.best_id().address(),
                                    .chunk_best = workspace_.chunk_best().address(),
                                    .chunks = workspace_.sample_chunks().address(),
                                    .vocab = static_cast<int>(width(n.in[0]))};
  const MemoryRange best{params.best, workspace_.best().size()};
  if (Status s = emit({"sample_parts", {}}, params, {kSampleSplits, sizes_.max_outputs}, {{range_of(n.in[0])}, {best}});
      !s.ok()) {
    return s;
  }
  return emit({"sample_rows", {}}, params, {1, sizes_.max_outputs}, {{best}, {{cache_.last_sampled(), sizeof(int)}}});
}

}  // namespace zinc::vulkan
