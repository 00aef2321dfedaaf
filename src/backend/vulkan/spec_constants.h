// Ids of the kernels' specialization constants (`constant_id` in shader/*.comp and *.glsl). An id is unique within one
// kernel, not across kernels: the prefix of a name tells its kernels.
#pragma once

#include <cstdint>

namespace zinc::vulkan {

enum SpecConstant : uint32_t {
  // All kernels, where present.
  kSpecSubgroupSize = 0,    // reduce.glsl; set by Device
  kSpecCounterSync = 19,    // counter_sync.glsl
  kSpecUnalignedRows = 20,  // quantize.glsl
  kSpecWarmUp = 23,         // counter_sync.glsl

  // linear, moe_down, gemm, gemm_planes: matmul.glsl, segments.glsl, prologue.glsl, moe_route.glsl
  kSpecMatmulGatedAct = 3,
  kSpecMatmulStagesRow = 4,
  kSpecMatmulRowQuads = 5,
  kSpecMatmulExpertMode = 6,
  kSpecRouteCapacity = 7,  // moe_route too
  kSpecMatmulInputKind = 9,
  kSpecMatmulGateAct = 21,
  kSpecMatmulLoadsInFlight = 22,
  kSpecLinearRows = 1,
  kSpecLinearSplitK = 2,
  kSpecLinearKSplits = 10,
  kSpecMoeDownSegments = 2,
  kSpecMoeDownPrefetch = 8,
  kSpecGemmWarpRows = 1,
  kSpecGemmDepth = 2,

  // attention, attention_coopmat, qk_norm_rope: attention.glsl, kv.glsl, qk_norm_rope.glsl
  kSpecAttentionRows = 1,
  kSpecAttentionSplitKv = 2,
  kSpecAttentionFused = 3,
  kSpecAttentionKeyDim = 4,
  kSpecAttentionValueDim = 5,
  kSpecKvFormat = 16,
  kSpecHeadSegments = 17,
  kSpecHeadFloats = 18,

  // delta_recurrent, delta_chunks, delta_decode
  kSpecDeltaStateRows = 1,
  kSpecDeltaChunkColumns = 2,
  kSpecDeltaDecodeTaps = 2,

  kSpecNormWarpPerRow = 1,
  kSpecSampleFirstPass = 1,
  kSpecDispatchOrderSharedWords = 1,
};

}  // namespace zinc::vulkan
