#include "backend/simt/host/lowering.h"

#include <algorithm>

#include "backend/simt/host/attention_shape.h"

namespace zinc::simt::host {
namespace {

int64_t blocks_of(int dim) { return ceil_div(dim, 32); }

// Shared memory of a block with n_rows rows of queries.
size_t attention_smem_bytes(const simt::KvLayer& kv, int n_rows) {
  const int64_t row = simt::kWarps * 128 + simt::kChunkPositions + 32 * (blocks_of(kv.k_dim) + blocks_of(kv.v_dim)) + 4;
  return static_cast<size_t>(n_rows * row) * sizeof(float);
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
  params.act = simt::kNoAct;
  params.partial = workspace_.attention_partial().device_ptr<float>();
  params.done_counters = workspace_.attention_done_counters().device_ptr<int>();
  return params;
}

// REQUIRES: call.act.
template <class Call>
void Lowering::fill_output_gate(const Call& call, simt::AttentionParams& params) const {
  params.gate = slice_of(call.gate);
  params.gate_stride = static_cast<int>(width(call.gate.x) / params.n_heads);
  params.act = act_of(*call.act);
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
  if (call.act) fill_output_gate(call, params);
  gpu::Accesses accesses;
  fill_output(call.out, params, accesses);
  const int n_warps = mma_warps(kv, cache_.kv_format(), device_);
  if (has_split_rows()) {
    const gpu::UploadLayout::GroupUnits& group = workspace_.layout().attention[static_cast<size_t>(kv.group)];
    const int* upload = workspace_.step().counts;
    params.units = reinterpret_cast<const simt::AttentionUnit*>(upload + group.units);
    params.n_units = upload + group.n_units;
    params.prefill_tokens = upload + group.prefill_tokens;
    const int max_units = group.limits.max_units;
    Status s = n_warps > 0 ? lower_units_mma(params, max_units) : lower_units_f32(params, max_units);
    if (!s.ok()) return s;
  }
  if (!has_prefill_rows(sizes_)) return ok_status();
  return n_warps > 0 ? lower_prefill_mma(params, n_warps) : lower_prefill_f32(params);
}

// Blocks take the units in turn, two per SM at a time.
Status Lowering::lower_units_mma(const simt::AttentionParams& params, int max_units) {
  const simt::KvLayer& kv = params.kv;
  const int heads_per_kv_head = params.n_heads / kv.kv_heads;
  const simt::AttentionDecodeShape shape{.k_dim = kv.k_dim,
                                         .v_dim = kv.v_dim,
                                         .heads_per_kv_head = heads_per_kv_head,
                                         .tile_heads = unit_tile_heads(kv, heads_per_kv_head, device_),
                                         .window = params.window,
                                         .has_softcap = params.softcap > 0 ? 1 : 0,
                                         .act = params.act};
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, shape.tile_heads);
  const int64_t n_blocks = std::min<int64_t>(max_units, ceil_div(split_kv_blocks(device_), n_tiles));
  return emit(kv_program("attention_units", shape_definition("AttentionDecodeShape", shape)), "attention_units", params,
              n_tiles, n_blocks, 1, static_cast<size_t>(simt::attention_decode_smem_bytes(shape)));
}

Status Lowering::lower_units_f32(simt::AttentionParams params, int max_units) {
  constexpr int kF32Heads = 2;  // more rows per block would only save reads of keys that hit the L2 cache
  const simt::KvLayer& kv = params.kv;
  const int heads_per_kv_head = params.n_heads / kv.kv_heads;
  params.heads_per_tile = std::min(heads_per_kv_head, kF32Heads);
  params.tokens_per_tile = 1;
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile);
  const int64_t n_blocks = std::min<int64_t>(max_units, ceil_div(2 * split_kv_blocks(device_), n_tiles));
  return emit(kv_program("attention"), "attention_units_2", params, n_tiles, n_blocks, 1,
              attention_smem_bytes(kv, kF32Heads));
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
  simt::AttentionMmaShape shape = mma_shape(params.kv, n_warps, device_);
  shape.act = params.act;
  shape.has_q8 = params.q8.q ? 1 : 0;
  params.heads_per_tile = std::min(heads_per_kv_head, prefill_rows(shape));
  params.tokens_per_tile = prefill_rows(shape) / params.heads_per_tile;
  return emit(kv_program("attention_mma", shape_definition("AttentionMmaShape", shape)), "attention_prefill", params,
              params.kv.kv_heads * ceil_div(heads_per_kv_head, params.heads_per_tile),
              ceil_div(sizes_.max_tokens, params.tokens_per_tile), 1, prefill_smem_bytes(params.kv, shape));
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
  if (call.act) fill_output_gate(call, params.attention);
  params.attention.out = workspace_.floats(call.out());
  const int heads_per_kv_head = params.attention.n_heads / kv.kv_heads;
  if (mma_warps(kv, cache_.kv_format(), device_) == 0) {
    constexpr int kHeads = 2;
    const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, kHeads), n_sms = device_.n_sms;
    const int64_t n_splits = std::clamp<int64_t>(n_sms / n_tiles, 1, params.attention.n_chunks);
    return emit(kv_program("attention"), "attention_decode_f32", params, n_tiles, 1, n_splits,
                attention_smem_bytes(kv, kHeads));
  }
  const simt::AttentionDecodeShape shape{.k_dim = kv.k_dim,
                                         .v_dim = kv.v_dim,
                                         .heads_per_kv_head = heads_per_kv_head,
                                         .tile_heads = decode_tile_heads(kv, heads_per_kv_head, device_),
                                         .window = params.attention.window,
                                         .has_softcap = params.attention.softcap > 0 ? 1 : 0,
                                         .act = params.attention.act,
                                         .prepares_heads = 1,
                                         .has_keys = params.parts[simt::kKey].x ? 1 : 0,
                                         .rope_layout = rope_layout_of(params)};
  const int64_t n_tiles = kv.kv_heads * ceil_div(heads_per_kv_head, shape.tile_heads);
  return emit(kv_program("attention_decode", shape_definition("AttentionDecodeShape", shape)), "attention_decode",
              params, one_per_sm(n_tiles), 1, 1, static_cast<size_t>(simt::attention_decode_smem_bytes(shape)));
}

}  // namespace zinc::simt::host
