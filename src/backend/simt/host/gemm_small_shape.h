// Which tiles gemm_small.cu runs with. Plain data; needs no GPU.
#pragma once

#include <cstdint>

#include "backend/simt/params.h"

namespace zinc::simt::host {

inline constexpr int kMaxGemmSmallTokens = 64;  // of a step
inline constexpr int kMinGemmSmallColumns = 8;
// Of a block, at most: on an H200 blocks of two launches fit on an SM.
inline constexpr int kGemmSmallSharedBytes = 98 << 10;

// The geometry for a format with K segments of this size: the narrowest tile that has n_columns columns, or the widest.
simt::GemmSmallShape gemm_small_shape(int n_columns, bool has_experts, int segment_bytes);

// Columns of an expert's tile: as many as an average expert has of these token-expert pairs.
int gemm_small_expert_columns(int64_t n_pairs, int64_t n_experts);

}  // namespace zinc::simt::host
