// Which attention kernels a layer runs, and their shapes: from its dimensions, its KV cache format and the device. The
// same for all step sizes, so that their results are bit-identical.
#pragma once

#include "backend/gpu/kernel_formats.h"
#include "backend/simt/host/kernel_call.h"

namespace zinc::simt::host {

// Warps that share an MMA tile; 0: no tensor cores, an f32 KV cache, or too little shared memory.
int mma_warps(const simt::KvLayer& kv, const gpu::KvFormat& format, const DeviceLimits& device);

// Query rows, and shared memory, of a block of attention_prefill. REQUIRES: n_warps == mma_warps() > 0.
simt::AttentionMmaShape mma_shape(const simt::KvLayer& kv, int n_warps, const DeviceLimits& device);
int prefill_rows(const simt::AttentionMmaShape& shape);
size_t prefill_smem_bytes(const simt::KvLayer& kv, const simt::AttentionMmaShape& shape);

// Heads per block of attention_units: those of a KV head, in as few tiles as leave space for two blocks per SM.
// REQUIRES: mma_warps() > 0.
int unit_tile_heads(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device);
// Heads per block of attention_decode: those of a KV head, in as few tiles as fit shared memory. REQUIRES: mma_warps()
// > 0.
int decode_tile_heads(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device);
// Whether blocks of attention_units and row sets of attention_prefill have whole segments of a row.
bool has_whole_segments(const simt::KvLayer& kv, int heads_per_kv_head, const DeviceLimits& device);

}  // namespace zinc::simt::host
