// Specialization constants of the kernels, by name on both sides: `constant_id = kSpecLinearRows` in a shader. Their
// ids are numbered in the order of this list, so that each is unique. Declared once: host C++, and GLSL by
// tools/shaders.
#pragma once

#include <cstdint>

namespace zinc::vulkan {

enum SpecConstant : uint32_t {
  // All kernels, where present.
  kSpecSubgroupSize,   // reduce.glsl; set by Device
  kSpecCounterSync,    // counter_sync.glsl
  kSpecWarmUp,         // counter_sync.glsl
  kSpecUnalignedRows,  // quantize.glsl

  // linear, moe_down, gemm, gemm_planes, gemm_small, gemm_floats: matmul.glsl, segments.glsl, prologue.glsl,
  // moe_route.glsl
  kSpecMatmulGatedAct,
  kSpecMatmulStagesRow,
  kSpecMatmulRowQuads,
  kSpecMatmulExpertMode,
  kSpecRouteCapacity,  // moe_route too
  kSpecMatmulInputKind,
  kSpecMatmulGateAct,
  kSpecMatmulLoadsInFlight,
  kSpecLinearRows,
  kSpecLinearSplitK,
  kSpecLinearKSplits,
  kSpecMoeDownSegments,
  kSpecMoeDownPrefetch,
  kSpecGemmWarpRows,
  kSpecGemmDepth,
  kSpecGemmSmallTiles,

  // attention, attention_coopmat, qk_norm_rope: attention.glsl, kv.glsl, qk_norm_rope.glsl
  kSpecAttentionRows,
  kSpecAttentionSplitKv,
  kSpecAttentionUnits,
  kSpecAttentionFused,
  kSpecAttentionKeyDim,
  kSpecAttentionValueDim,
  kSpecHeadSegments,
  kSpecHeadFloats,

  // delta_recurrent, delta_chunks, delta_decode, delta_layer
  kSpecDeltaStateRows,
  kSpecDeltaChunkColumns,
  kSpecDeltaDecodeTaps,
  kSpecDeltaValueDim,

  kSpecNormWarpPerRow,
  kSpecRowVec8s,  // norm, moe_combine: row_in_registers.glsl
  kSpecDispatchOrderSharedWords,
};

}  // namespace zinc::vulkan
