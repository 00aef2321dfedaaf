#include "backend/simt/host/lowering.h"

#include <algorithm>

namespace zinc::simt::host {
namespace {

constexpr int kMmaRows = 16;  // query rows of an MMA tile

constexpr int64_t kChunkFloats = 4 * 36 * 32;  // partial results of a chunk before the merge, per warp of a group
int64_t blocks_of(int dim) { return ceil_div(dim, 32); }

// Shared memory of a block with n_rows rows of queries.
size_t attention_smem_bytes(const simt::KvLayer& kv, int n_rows) {
  const int64_t row = simt::kWarps * 128 + simt::kChunkPositions + 32 * (blocks_of(kv.k_dim) + blocks_of(kv.v_dim)) + 4;
  return static_cast<size_t>(n_rows * row) * sizeof(float);
}

// Queries in f16, and for each set of rows its softmax probabilities (P) and reduce_buf.
int64_t mma_floats(const simt::KvLayer& kv, int64_t n_queries, int64_t n_sets, int n_warps) {
  return n_queries * (blocks_of(kv.k_dim) * 16 + 4) + n_sets * (kMmaRows * 36 + 2 * kMmaRows * n_warps);
}

// Shared memory of attention_split_kv, and of attention_prefill with n_sets sets of rows per warp group.
size_t split_kv_smem_bytes(const simt::KvLayer& kv, int n_warps) {
  return sizeof(float) *
         static_cast<size_t>(kChunkFloats * n_warps + mma_floats(kv, kMmaRows, simt::kWarps / n_warps, n_warps));
}
size_t prefill_smem_bytes(const simt::KvLayer& kv, int n_warps, int n_sets) {
  const int64_t all_sets = simt::kWarps / n_warps * n_sets;
  const int64_t accumulators =
      simt::accumulates_in_registers(n_warps) ? 0 : n_sets * simt::kAccumulatorFloats * simt::kThreads;
  return sizeof(float) * static_cast<size_t>(accumulators + mma_floats(kv, all_sets * kMmaRows, all_sets, n_warps)) +
         static_cast<size_t>(simt::kv_tile_bytes(kv.k_dim, kv.v_dim));
}

// Warps that share an MMA tile; 0: no tensor cores, an f32 KV cache, or too little shared memory. The same for all step
// sizes, so that their results are bit-identical.
int mma_warps(const simt::KvLayer& kv, const gpu::KvFormat& format, const DeviceLimits& device) {
  const int n = format.name == "f32" || !device.has_tensor_cores() ? 0 : simt::warps_per_kv_tile(kv.k_dim, kv.v_dim);
  if (n == 0) return 0;
  return std::max(split_kv_smem_bytes(kv, n), prefill_smem_bytes(kv, n, 1)) <=
                 static_cast<size_t>(device.max_shared_bytes)
             ? n
             : 0;
}

// Two sets of rows per warp group share the loaded keys and values, if shared memory allows. With all positions of a
// tile in one warp they also need all its registers, which suffice only as compiled for Hopper.
simt::AttentionMmaShape mma_shape(const simt::KvLayer& kv, int n_warps, const DeviceLimits& device) {
  const bool has_two_sets = prefill_smem_bytes(kv, n_warps, 2) <= static_cast<size_t>(device.max_shared_bytes) &&
                            (n_warps > 1 || device.has_wgmma());
  return {.n_warps = n_warps, .n_sets = has_two_sets ? 2 : 1};
}

// The RoPE layout of both queries and keys.
simt::RopeLayout rope_layout_of(const simt::AttentionDecodeParams& params) {
  if (params.parts[simt::kQuery].adjacent || params.parts[simt::kKey].adjacent) return simt::kRopeAdjacent;
  const bool is_vec8_aligned = params.parts[simt::kQuery].n_pairs % 8 == 0 && params.parts[simt::kKey].n_pairs % 8 == 0;
  return is_vec8_aligned ? simt::kRopeHalvesVec8 : simt::kRopeHalvesRagged;
}

}  // namespace

KernelProgram Lowering::kv_program(std::string file, std::string shape) const {
  return {std::move(file), "", std::move(shape), cache_.kv_format().name};
}

simt::AttentionParams Lowering::attention_params(const Node& n) const {
  simt::AttentionParams params{};
  params.step = workspace_.step();
  params.kv = simt_kv_layer(cache_.kv_layer(n.as<zinc::AttentionParams>().cache_layer));
  fill_attention(n, params);
  params.out = workspace_.floats(n.out[0]);
  return params;
}

Status Lowering::lower(const gpu::AttentionCall& call) {
  const Node& n = *call.node;
  simt::AttentionParams params = attention_params(n);
  const simt::KvLayer& kv = params.kv;
  if (call.inputs) {
    if (Status s = lower_attention_inputs(call, kv); !s.ok()) return s;
  } else if (n.in[1]) {
    const simt::KvWriteParams write{workspace_.step(), kv, workspace_.floats(n.in[1]), workspace_.floats(n.in[2])};
    const int64_t n_warps = int64_t{sizes_.max_tokens} * kv.kv_heads * (blocks_of(kv.k_dim) + blocks_of(kv.v_dim));
    if (Status s = emit(kv_program("attention"), "kv_write", write, ceil_div(n_warps, simt::kWarps)); !s.ok()) return s;
  }
  const int n_warps = mma_warps(kv, cache_.kv_format(), device_);
  if (has_split_rows()) {
    const gpu::UploadLayout::GroupUnits& group = workspace_.layout().attention[static_cast<size_t>(kv.group)];
    const int* upload = workspace_.step().counts;
    params.units = reinterpret_cast<const simt::AttentionUnit*>(upload + group.units);
    params.n_units = upload + group.n_units;
    params.rows = reinterpret_cast<const simt::AttentionRow*>(upload + group.rows);
    params.partial = workspace_.attention_partial().device_ptr<float>();
    if (Status s = lower_split_kv(params, n_warps, group.limits.max_units); !s.ok()) return s;
  }
  if (sizes_.max_tokens > gpu::kMaxSplitTokens) {
    if (Status s = n_warps > 0 ? lower_prefill_mma(params, n_warps) : lower_prefill_f32(params); !s.ok()) return s;
  }
  if (!has_split_rows()) return ok_status();
  gpu::Accesses accesses;
  fill_output(call.out, params, accesses);
  constexpr int kMaxMergeBlocks = 64;  // per segment
  return emit(kv_program("attention"), "merge_chunks", params, ceil_div(width(n.out[0]), simt::kSegmentElems),
              std::min(sizes_.max_tokens, kMaxMergeBlocks));
}

Status Lowering::lower_split_kv(simt::AttentionParams params, int n_warps, int max_units) {
  constexpr int kF32Heads = 2;  // more rows per block would only save reads of keys that hit the L2 cache
  const simt::KvLayer& kv = params.kv;
  const int heads_per_kv_head = params.n_heads / kv.kv_heads;
  params.heads_per_tile = std::min(heads_per_kv_head, n_warps > 0 ? kMmaRows : kF32Heads);
  params.tokens_per_tile = 1;
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile);
  const int64_t n_blocks = std::min<int64_t>(max_units, ceil_div(2 * split_kv_blocks(device_), n_tiles));
  if (n_warps == 0) {
    return emit(kv_program("attention"), "attention_split_2", params, n_tiles, n_blocks, 1,
                attention_smem_bytes(kv, kF32Heads));
  }
  const simt::AttentionMmaShape shape = mma_shape(kv, n_warps, device_);
  return emit(kv_program("attention_mma", shape_definition("AttentionMmaShape", shape)), "attention_split_kv", params,
              n_tiles, n_blocks, 1, split_kv_smem_bytes(kv, n_warps));
}

Status Lowering::lower_prefill_f32(simt::AttentionParams params) {
  const simt::KvLayer& kv = params.kv;
  const int heads_per_kv_head = params.n_heads / kv.kv_heads;
  int max_rows = simt::kAttentionRows;
  while (max_rows > 2 && attention_smem_bytes(kv, max_rows) > static_cast<size_t>(device_.max_shared_bytes))
    max_rows /= 2;
  params.heads_per_tile = std::min(heads_per_kv_head, max_rows);
  params.tokens_per_tile = std::max(1, max_rows / params.heads_per_tile);
  int tile_rows = 2;  // of the kernel: 2, 4 or 8
  while (tile_rows < params.heads_per_tile * params.tokens_per_tile) tile_rows *= 2;
  return emit(kv_program("attention"), fmt::format("attention_{}", tile_rows).c_str(), params,
              kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile),
              ceil_div(sizes_.max_tokens, params.tokens_per_tile), 1, attention_smem_bytes(kv, tile_rows));
}

Status Lowering::lower_prefill_mma(simt::AttentionParams params, int n_warps) {
  const int heads_per_kv_head = params.n_heads / params.kv.kv_heads;
  const simt::AttentionMmaShape shape = mma_shape(params.kv, n_warps, device_);
  const int n_rows = simt::kWarps / n_warps * shape.n_sets * kMmaRows;
  params.heads_per_tile = std::min(heads_per_kv_head, n_rows);
  params.tokens_per_tile = n_rows / params.heads_per_tile;
  return emit(kv_program("attention_mma", shape_definition("AttentionMmaShape", shape)), "attention_prefill", params,
              params.kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile),
              ceil_div(sizes_.max_tokens, params.tokens_per_tile), 1,
              prefill_smem_bytes(params.kv, n_warps, shape.n_sets));
}
Status Lowering::lower_attention_inputs(const gpu::AttentionCall& call, const simt::KvLayer& kv) {
  simt::HeadsParams params{};
  params.step = workspace_.step();
  params.kv = kv;
  params.q_out = workspace_.floats(call.node->in[0]);
  gpu::Accesses accesses;
  fill_heads(*call.node, *call.inputs, params.parts, accesses);
  const gpu::AttentionInput& q = (*call.inputs)[simt::kQuery];
  if (!q.norm && !q.rope) params.parts[simt::kQuery].n_heads = 0;  // needs no preparation
  int n_heads = 0;
  for (const simt::HeadInput& part : params.parts) n_heads += part.n_heads;
  return emit(kv_program("attention"), "prepare_heads", params,
              ceil_div(int64_t{sizes_.max_tokens} * n_heads, simt::kWarps));
}

// All of attention in one launch: several heads per block, KV chunks split over all SMs.
Status Lowering::lower(const gpu::AttentionDecodeCall& call) {
  const Node& n = *call.node;
  simt::AttentionDecodeParams params{};
  params.attention = attention_params(n);
  const simt::KvLayer& kv = params.attention.kv;
  gpu::Accesses accesses;
  fill_heads(n, call.inputs, params.parts, accesses);
  params.act = simt::kNoAct;
  if (call.act) {
    params.gate = slice_of(call.gate);
    params.gate_stride = static_cast<int>(width(call.gate.x) / params.attention.n_heads);
    params.act = act_of(*call.act);
  }
  params.attention.out = workspace_.floats(call.out());
  params.attention.partial = workspace_.attention_partial().device_ptr<float>();
  params.done_counters = workspace_.attention_done_counters().device_ptr<int>();
  const int heads_per_kv_head = params.attention.n_heads / kv.kv_heads;
  if (mma_warps(kv, cache_.kv_format(), device_) == 0) {
    constexpr int kHeads = 2;
    const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, kHeads), n_sms = device_.n_sms;
    const int64_t n_splits = std::clamp<int64_t>(n_sms / n_tiles, 1, params.attention.n_chunks);
    return emit(kv_program("attention"), "attention_decode_f32", params, n_tiles, 1, n_splits,
                attention_smem_bytes(kv, kHeads));
  }
  constexpr int64_t kMaxTileHeads = 6;  // one warp per head, and two for the new key and value
  const simt::AttentionDecodeShape shape{
      .k_dim = kv.k_dim,
      .v_dim = kv.v_dim,
      .heads_per_kv_head = heads_per_kv_head,
      .tile_heads = static_cast<int>(ceil_div(heads_per_kv_head, ceil_div(heads_per_kv_head, kMaxTileHeads))),
      .window = params.attention.window,
      .has_softcap = params.attention.softcap > 0 ? 1 : 0,
      .has_keys = params.parts[simt::kKey].x ? 1 : 0,
      .act = params.act,
      .rope_layout = rope_layout_of(params)};
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, shape.tile_heads);
  return emit(kv_program("attention_decode", shape_definition("AttentionDecodeShape", shape)), "attention_decode",
              params, one_per_sm(n_tiles), 1, 1, static_cast<size_t>(simt::attention_decode_smem_bytes(shape)));
}

}  // namespace zinc::simt::host
