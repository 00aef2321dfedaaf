#include "backend/cuda/lowering.h"

#include <algorithm>

namespace zinc::cuda {
namespace {

constexpr int kMaxSplits = 64;
constexpr int kUnitRows = 16;  // of simt/attention_mma.h

simt::KvFormat kept_as(std::string_view format) {
  return format == "f32"    ? simt::kKvF32
         : format == "f16"  ? simt::kKvF16
         : format == "q8_0" ? simt::kKvQ8
                            : simt::kKvFp8;
}

constexpr int64_t kChunkFloats = 4 * 36 * 32;  // a chunk's units on their way to be merged, for each warp of a group
int64_t blocks_of(int dim) { return div_up(dim, 32); }

// Shared memory of a block with so many rows of queries.
size_t attention_bytes(const simt::KvLayer& kv, int n_rows) {
  const int64_t row = simt::kWarps * 128 + simt::kChunkPositions + 32 * (blocks_of(kv.k_dim) + blocks_of(kv.v_dim)) + 4;
  return static_cast<size_t>(n_rows * row) * sizeof(float);
}

// Queries as halves, and each set of rows' weights and exchange.
int64_t unit_floats(const simt::KvLayer& kv, int64_t n_queries, int64_t n_sets, int n_warps) {
  return n_queries * (blocks_of(kv.k_dim) * 16 + 4) + n_sets * (kUnitRows * 36 + 2 * kUnitRows * n_warps);
}

// Shared memory of attend_few, and of attend_rows with so many sets of rows for each group of warps.
size_t few_bytes(const simt::KvLayer& kv, int n_warps) {
  return sizeof(float) *
         static_cast<size_t>(kChunkFloats * n_warps + unit_floats(kv, kUnitRows, simt::kWarps / n_warps, n_warps));
}
size_t rows_bytes(const simt::KvLayer& kv, int n_warps, int n_sets) {
  const int64_t all_sets = simt::kWarps / n_warps * n_sets;
  const int64_t kept = simt::total_in_registers(n_warps) ? 0 : n_sets * simt::kTotalFloats * simt::kThreads;
  return sizeof(float) * static_cast<size_t>(kept + unit_floats(kv, all_sets * kUnitRows, all_sets, n_warps)) +
         static_cast<size_t>(simt::unit_bytes(kv.k_dim, kv.v_dim));
}

// Warps that share a unit on matrix cores; 0: the card has none, keys and values are floats, or a block has no room for
// the unit. One answer for steps of all sizes, which agree to the bit.
int unit_warps(const simt::KvLayer& kv, std::string_view format, const Device& device) {
  const int n = format == "f32" || !device.has_matrix_cores() ? 0 : simt::warps_of_unit(kv.k_dim, kv.v_dim);
  if (n == 0) return 0;
  return std::max(few_bytes(kv, n), rows_bytes(kv, n, 1)) <= static_cast<size_t>(device.max_shared_bytes()) ? n : 0;
}

// What holds for the queries' rotation and the key's.
simt::TurnKind turn_of(const simt::AttendOneParams& params) {
  if (params.parts[0].adjacent || params.parts[1].adjacent) return simt::kTurnPairs;
  const bool are_whole = params.parts[0].n_pairs % 8 == 0 && params.parts[1].n_pairs % 8 == 0;
  return are_whole ? simt::kTurnEights : simt::kTurnRagged;
}

}  // namespace

KernelProgram Lowering::kept_program(std::string file) const {
  return {std::move(file), "",
          fmt::format("inline constexpr KvFormat kKept = static_cast<KvFormat>({});",
                      static_cast<int>(kept_as(cache_.kv_format())))};
}

simt::AttentionParams Lowering::attention_params(const Node& n) const {
  const zinc::AttentionParams& attention = n.as<zinc::AttentionParams>();
  simt::AttentionParams params{};
  params.step = room_.step();
  params.kv = cache_.kv_layer(attention.cache_layer);
  params.q = room_.floats(n.in[0]);
  params.sinks = vector(n.in[3]);
  params.out = room_.floats(n.out[0]);
  params.n_heads = static_cast<int>(info(n.in[0]).shape[0]);
  params.scale = attention.scale;
  params.softcap = attention.softcap;
  params.window = static_cast<int>(attention.window);
  params.n_chunks = room_.n_chunks(attention.cache_layer);
  return params;
}

Status Lowering::lower_attention(int i) {
  const Node& n = node(i);
  simt::AttentionParams params = attention_params(n);
  const simt::KvLayer& kv = params.kv;
  const HeadGroup* heads = room_.fusion().heads_of(i);
  if (heads) {
    if (Status s = lower_heads(*heads, kv); !s.ok()) return s;
  } else if (n.in[1]) {
    const simt::KvWriteParams write{room_.step(), kv, room_.floats(n.in[1]), room_.floats(n.in[2])};
    const int64_t n_warps = int64_t{sizes_.max_tokens} * kv.kv_heads * (blocks_of(kv.k_dim) + blocks_of(kv.v_dim));
    if (Status s = emit(kept_program("attention"), "kv_write", write, div_up(n_warps, simt::kWarps)); !s.ok()) return s;
  }
  params.partial = sizes_.max_tokens <= kMaxSplitTokens ? room_.attention_partial() : nullptr;
  const int n_warps = unit_warps(kv, cache_.kv_format(), device_);
  if (Status s = n_warps > 0 ? lower_attend_units(params, n_warps) : lower_attend(params); !s.ok()) return s;
  if (!params.partial) return ok_status();
  const Written out = written(n.out[0], width(n.out[0]));
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  return emit(kept_program("attention"), "merge_chunks", params, div_up(width(n.out[0]), simt::kSegmentElems),
              sizes_.max_tokens);
}

Status Lowering::lower_attend(simt::AttentionParams& params) {
  const simt::KvLayer& kv = params.kv;
  const int group_heads = params.n_heads / kv.kv_heads;
  const bool is_split = sizes_.max_tokens <= kMaxSplitTokens;
  // Two rows a block keep a step of few tokens short; more would only save reads of keys that lie in the cache.
  int most_rows = is_split ? 2 : simt::kAttentionRows;
  while (most_rows > 2 && attention_bytes(kv, most_rows) > static_cast<size_t>(device_.max_shared_bytes()))
    most_rows /= 2;
  params.heads_per_tile = std::min(group_heads, most_rows);
  params.tokens_per_tile = is_split ? 1 : std::max(1, most_rows / params.heads_per_tile);
  int tile_rows = 2;  // of the kernel: 2, 4 or 8
  while (tile_rows < params.heads_per_tile * params.tokens_per_tile) tile_rows *= 2;
  return emit(kept_program("attention"), fmt::format("attention_{}", tile_rows).c_str(), params,
              kv.kv_heads * div_up(group_heads, params.heads_per_tile),
              div_up(sizes_.max_tokens, params.tokens_per_tile), is_split ? std::min(kMaxSplits, params.n_chunks) : 1,
              attention_bytes(kv, tile_rows));
}

Status Lowering::lower_attend_units(simt::AttentionParams params, int n_warps) {
  const bool is_split = params.partial != nullptr;
  const int group_heads = params.n_heads / params.kv.kv_heads;
  // Two sets of rows for each group of warps share what is read of keys and values, where a block has room for them.
  // With all of a unit's positions in one warp they also take all of its registers, which suffice as compiled for
  // Hopper only.
  const bool has_room = rows_bytes(params.kv, n_warps, 2) <= static_cast<size_t>(device_.max_shared_bytes()) &&
                        (n_warps > 1 || device_.has_warpgroups());
  const simt::UnitShape shape{.kv_format = kept_as(cache_.kv_format()), .n_warps = n_warps, .n_sets = has_room ? 2 : 1};
  const int n_rows = is_split ? kUnitRows : simt::kWarps / n_warps * shape.n_sets * kUnitRows;
  params.heads_per_tile = std::min(group_heads, n_rows);
  params.tokens_per_tile = is_split ? 1 : n_rows / params.heads_per_tile;
  return emit({"attention_units", "",
               fmt::format("inline constexpr UnitShape kShape = {{{}, {}, {}}};", shape.kv_format, shape.n_warps,
                           shape.n_sets)},
              is_split ? "attend_few" : "attend_rows", params,
              params.kv.kv_heads * div_up(group_heads, params.heads_per_tile),
              div_up(sizes_.max_tokens, params.tokens_per_tile), is_split ? std::min(kMaxSplits, params.n_chunks) : 1,
              is_split ? few_bytes(params.kv, n_warps) : rows_bytes(params.kv, n_warps, shape.n_sets));
}

simt::HeadPart Lowering::head_part(const HeadChain& chain) const {
  simt::HeadPart part{};
  if (!chain.x) return part;
  part.x = sliced(chain);
  if (chain.norm >= 0) {
    part.is_normed = 1;
    part.norm_weight = vector(node(chain.norm).in[1]);
    part.eps = node(chain.norm).as<zinc::NormParams>().eps;
  }
  if (chain.rope >= 0) {
    const RopeTable& table = room_.rope_table(chain.rope);
    part.table = table.table.as<const float>();
    part.n_pairs = static_cast<int>(table.frequencies.size());
    part.adjacent = node(chain.rope).as<zinc::RopeParams>().pairs == RopePairs::adjacent ? 1 : 0;
  }
  return part;
}

Status Lowering::lower_heads(const HeadGroup& group, const simt::KvLayer& kv) {
  const Node& n = node(group.attention);
  simt::HeadsParams params{};
  params.step = room_.step();
  params.kv = kv;
  params.q_out = room_.floats(n.in[0]);
  int n_heads = 0;
  for (size_t i = 0; i < 3; ++i) {
    simt::HeadPart& part = params.parts[i];
    part = head_part(group.parts[i]);
    if (!part.x || (i == 0 && group.parts[0].norm < 0 && group.parts[0].rope < 0)) continue;  // q is as it should be
    part.dim = static_cast<int>(inner(n.in[i]));
    part.n_heads = static_cast<int>(width(n.in[i])) / part.dim;
    part.stride = static_cast<int>(width(group.parts[i].x) / part.n_heads);
    n_heads += part.n_heads;
  }
  return emit(kept_program("attention"), "prepare_heads", params,
              div_up(int64_t{sizes_.max_tokens} * n_heads, simt::kWarps));
}

// All of it in one launch: some heads a block, chunks spread over as many blocks as there are multiprocessors.
Status Lowering::lower_attend_one(const HeadGroup& group) {
  const Node& n = node(group.attention);
  simt::AttendOneParams params{};
  params.attention = attention_params(n);
  const simt::KvLayer& kv = params.attention.kv;
  for (size_t i = 0; i < 3; ++i) {
    simt::HeadPart& part = params.parts[i];
    part = head_part(group.parts[i]);
    if (!part.x) continue;
    part.dim = static_cast<int>(inner(n.in[i]));
    part.n_heads = static_cast<int>(width(n.in[i])) / part.dim;
    part.stride = static_cast<int>(width(group.parts[i].x) / part.n_heads);
  }
  params.act = simt::kNoAct;
  if (group.act >= 0) {
    params.gate = sliced(group.gate);
    params.gate_stride = static_cast<int>(width(group.gate.x) / params.attention.n_heads);
    params.act = static_cast<int>(node(group.act).as<GatedActParams>().act);
    params.attention.out = room_.floats(node(group.act).out[0]);
  }
  params.attention.partial = room_.attention_partial();
  params.n_done = room_.attention_counts();
  const int n_group = params.attention.n_heads / kv.kv_heads;
  if (unit_warps(kv, cache_.kv_format(), device_) == 0) {
    constexpr int kHeads = 2;
    const int64_t n_tiles = kv.kv_heads * div_up(n_group, kHeads), n_multiprocessors = device_.n_multiprocessors();
    const int64_t n_splits = std::clamp<int64_t>(n_multiprocessors / n_tiles, 1, params.attention.n_chunks);
    return emit(kept_program("attention"), "attend_one_f32", params, n_tiles, 1, n_splits, attention_bytes(kv, kHeads));
  }
  constexpr int64_t kMostHeads = 6;  // a warp each, and two for the key and the value
  const simt::AttendShape shape{.kv_format = kept_as(cache_.kv_format()),
                                .k_dim = kv.k_dim,
                                .v_dim = kv.v_dim,
                                .group_heads = n_group,
                                .tile_heads = static_cast<int>(div_up(n_group, div_up(n_group, kMostHeads))),
                                .window = params.attention.window,
                                .has_softcap = params.attention.softcap > 0 ? 1 : 0,
                                .has_keys = params.parts[1].x ? 1 : 0,
                                .act = params.act,
                                .turn = turn_of(params)};
  const std::string text =
      fmt::format("inline constexpr AttendShape kShape = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}};", shape.kv_format,
                  shape.k_dim, shape.v_dim, shape.group_heads, shape.tile_heads, shape.window, shape.has_softcap,
                  shape.has_keys, shape.act, shape.turn);
  const int64_t n_tiles = kv.kv_heads * div_up(n_group, shape.tile_heads);
  return emit({"attend_one", "", text}, "attend_one", params, one_per_multiprocessor(n_tiles), 1, 1,
              static_cast<size_t>(simt::attend_room_bytes(shape)));
}

}  // namespace zinc::cuda
