// Which tiles gemm_small.cu runs with. Plain data; needs no GPU.
#pragma once

#include <cstdint>

#include "backend/simt/params.h"

namespace zinc::simt::host {

inline constexpr int kMaxGemmSmallTokens = 128;       // of a step whose quantized matmuls all run a gemm_small
inline constexpr int kMaxGemmSmallWgmmaTokens = 256;  // larger steps run gemm_small_wgmma.cu for short matrices
inline constexpr int kMinGemmSmallColumns = 8;
// Of a block, at most. gemm_small.cu also runs on GPUs with 99 KB; gemm_small_wgmma.cu runs on Hopper only.
inline constexpr int kGemmSmallSharedBytes = 98 << 10, kGemmSmallWgmmaSharedBytes = 226 << 10;

// The geometry for a format with K segments of this size: the narrowest tile that has n_columns columns, or the widest.
simt::GemmSmallShape gemm_small_shape(int n_columns, bool has_experts, int segment_bytes, bool has_bulk_copies);
// n_row_tiles: 64 weight rows each.
simt::GemmSmallWgmmaShape gemm_small_wgmma_shape(int64_t n_row_tiles, int n_columns, int n_sms, int segment_bytes);

// Columns of an expert's tile: half as many again as an average expert has of these token-expert pairs.
int gemm_small_expert_columns(int64_t n_pairs, int64_t n_experts);

}  // namespace zinc::simt::host
