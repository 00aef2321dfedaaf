// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations on int8 cooperative matrices; see gemm.glsl.
// REQUIRES: a scale for 256 inputs. Once per workgroup, weights are multiplied by the integer scale of their quant group and
// split into a low and a high byte plane (value = low + kHighFactor * high): a segment is then one integer sum per plane.
// Sums are made in the order of linear.comp: results are bit-identical. Load addresses are computed before the loop and both
// halves of a segment are unrolled, because instructions other than the matrix products limit the loop.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "panel.glsl"
#include FORMAT
#include "matmul.glsl"
#include "gemm.glsl"
#include "planes.glsl"

const int kStageGroups = kSegmentGroups / 2;  // quant groups per stage
const int kPlaneQuads = 2 * kStageGroups, kRowStride = kPlaneQuads + 1;  // of a row or an output in a plane, in uvec4 (16 bytes)
const int kLowOffset = kTileRows * kRowStride, kHighOffset = kLowOffset + kTileOutputs * kRowStride;
const int kStageQuads = kHighOffset + kTileOutputs * kRowStride;

// Tile of x, then both planes of the weights; at the end the results.
shared uvec4 stage[kStageQuads > kResultQuads ? kStageQuads : kResultQuads];
shared float w_d[kTileOutputs], x_d[kTileRows];
#if HAS_MIN
// Per quant group: the minimum twice, and the sum of inputs as low + high with 6 low bits. All are exact in f16.
const int kMinStride = 24, kMinQuads = kMinStride / 8;  // per output or row: in f16 and in uvec4
// With 128 outputs they do not fit into 48 KB beside both planes: they overlay the stage after it is multiplied.
const bool kOverlaid = kWarpRows == 2;
const int kSumsOffset = kTileOutputs * kMinQuads;
#define MatAF16 coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseA>
#define MatBF16 coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseB>
shared float w_dmin[kTileOutputs];
shared float16_t w_mins[kOverlaid ? 1 : kTileOutputs * kMinStride];
shared uvec2 x_sums[kOverlaid ? 1 : kTileRows * kMinStride / 4];
Header segment_header;  // with kOverlaid: of the current segment and output thread_id() % kTileOutputs
#else
const bool kOverlaid = false;
#endif

// ---- global to shared memory ----

const int kXLoads = kTileRows * kPlaneQuads / kThreads, kWLoads = kTileOutputs * kStageGroups / kThreads;
uint x_offsets[kXLoads], x_d_offset;
uint64_t w_addresses[kWLoads];
uvec4 x_prefetch[kXLoads];
Raw w_prefetch[kWLoads];
Header header_prefetch[kWLoads];
float x_d_prefetch;
ivec4 x_sums_prefetch;

void find_load_addresses() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int item = i * kThreads + thread_id();
    x_offsets[i] = uint(tile_x_rows[item / kPlaneQuads]) * uint(p.q8.stride) + uint(16 * (item % kPlaneQuads));
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) w_addresses[i] = segment_of((i * kThreads + thread_id()) % kTileOutputs, 0);
  x_d_offset = uint(tile_x_rows[thread_id() / 2 % kTileRows] * (p.q8.stride / kSegmentElems));
}

void load_stage(int s, int first_group) {
  uint64_t from = p.q8.q + uint64_t(s * kSegmentElems + first_group * kGroupElems);
  [[unroll]] for (int i = 0; i < kXLoads; ++i) x_prefetch[i] = Quads(from + uint64_t(x_offsets[i])).data[0];
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int item = i * kThreads + thread_id(), row = item % kTileOutputs % kPanelRows;
    uint64_t segment = w_addresses[i] + uint64_t(s * kSegmentBytes);
    w_prefetch[i] = load_group(segment, row, first_group + item / kTileOutputs);
    header_prefetch[i] = load_header(segment, row);
  }
}

void store_stage(int first_group) {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int item = i * kThreads + thread_id();
    stage[item / kPlaneQuads * kRowStride + item % kPlaneQuads] = x_prefetch[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int item = i * kThreads + thread_id(), o = item % kTileOutputs, g = item / kTileOutputs;
    int to = kLowOffset + o * kRowStride + 2 * g;
    uint low[8], high[8];
    split_group(w_prefetch[i], header_prefetch[i], first_group + g, low, high);
    [[unroll]] for (int h = 0; h < 2; ++h) {
      stage[to + h] = uvec4(low[4 * h], low[4 * h + 1], low[4 * h + 2], low[4 * h + 3]);
      stage[to + h + kHighOffset - kLowOffset] = uvec4(high[4 * h], high[4 * h + 1], high[4 * h + 2], high[4 * h + 3]);
    }
#if HAS_MIN
    if (!kOverlaid) {
      float16_t min_value = float16_t(header_min(header_prefetch[i], first_group + g));
      w_mins[o * kMinStride + first_group + g] = w_mins[o * kMinStride + 8 + first_group + g] = min_value;
    }
    if (first_group + g == 0) w_dmin[o] = header_dmin(header_prefetch[i]);
#endif
    if (first_group + g == 0) w_d[o] = header_d(header_prefetch[i]);
  }
#if HAS_MIN
  if (kOverlaid) segment_header = header_prefetch[0];
#endif
}

// Scales and sums of a segment's rows: two threads per row.
void load_factors(int s) {
  uint offset = x_d_offset + uint(s);
  x_d_prefetch = Floats(p.q8.scale + 4ul * uint64_t(offset)).data[0];
#if HAS_MIN
  x_sums_prefetch = ivec4(Quads(p.q8.sum + 16ul * uint64_t(2u * offset + uint(thread_id() & 1))).data[0]);
#endif
}

void store_factors() {
  int row = thread_id() / 2, row_half = thread_id() & 1;
  if (row >= kTileRows) return;
  if (row_half == 0) x_d[row] = x_d_prefetch;
#if HAS_MIN
  if (kOverlaid) return;
  int to = row * (kMinStride / 4) + row_half;
  split_sums(x_sums_prefetch, x_sums[to], x_sums[to + 2]);
#endif
}

#if HAS_MIN
// Stores minima and sums over the stage. REQUIRES: the stage is multiplied; load_factors() was last called for this segment.
void store_overlaid() {
  int o = thread_id() % kTileOutputs;
  for (int k = thread_id() / kTileOutputs; k < kSegmentGroups / 2; k += kThreads / kTileOutputs) {
    uint min_pair = packHalf2x16(vec2(header_min(segment_header, 2 * k), header_min(segment_header, 2 * k + 1)));
    stage[o * kMinQuads][k] = min_pair;
    stage[o * kMinQuads + 1][k] = min_pair;
  }
  int to = kSumsOffset + thread_id() / 2 * kMinQuads, row_half = thread_id() & 1;
  if (thread_id() >= 2 * kTileRows) return;
  uvec2 low, high;
  split_sums(x_sums_prefetch, low, high);
  [[unroll]] for (int k = 0; k < 2; ++k) {
    stage[to][2 * row_half + k] = low[k];
    stage[to + 1][2 * row_half + k] = high[k];
  }
}
#endif

// ---- accumulators of a warp ----

AccI32 sums[2][2];  // of a segment

void multiply_stage() {
  AccI32 high_sums[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) high_sums[i / 2][i % 2] = AccI32(0);
  [[unroll]] for (int k = 0; k < kPlaneQuads; k += kDepth / 16) {
    MatA x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) {
      coopMatLoad(x[m], stage, (warp_row() + m * kTile) * kRowStride + k, kRowStride, kRowMajor);
    }
    [[unroll]] for (int n = 0; n < 2; ++n) {
      int offset = output_offset(n) * kRowStride + k;
      MatB low, high;
      coopMatLoad(low, stage, kLowOffset + offset, kRowStride, kColumnMajor);
      coopMatLoad(high, stage, kHighOffset + offset, kRowStride, kColumnMajor);
      [[unroll]] for (int m = 0; m < 2; ++m) {
        sums[m][n] = coopMatMulAdd(x[m], low, sums[m][n]);
        high_sums[m][n] = coopMatMulAdd(x[m], high, high_sums[m][n]);
      }
    }
  }
  [[unroll]] for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < sums[0][0].length(); ++i) sums[t / 2][t % 2][i] += kHighFactor * high_sums[t / 2][t % 2][i];
  }
}

void end_segment(inout AccF32 totals[2][2]) {
  AccF32 x_scale[2];
  [[unroll]] for (int m = 0; m < 2; ++m) coopMatLoad(x_scale[m], x_d, warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
  MatAF16 x_sum[2];
  [[unroll]] for (int m = 0; m < 2; ++m) {
    int row = warp_row() + m * kTile;
    if (kOverlaid) {
      coopMatLoad(x_sum[m], stage, kSumsOffset + row * kMinQuads, kMinQuads, kRowMajor);
    } else {
      coopMatLoad(x_sum[m], x_sums, row * (kMinStride / 4), kMinStride / 4, kRowMajor);
    }
  }
#endif
  [[unroll]] for (int n = 0; n < 2; ++n) {
    AccF32 d;
    coopMatLoad(d, w_d, output_offset(n), 0, kRowMajor);
#if HAS_MIN
    AccF32 dmin;
    MatBF16 mins;
    coopMatLoad(dmin, w_dmin, output_offset(n), 0, kRowMajor);
    if (kOverlaid) {
      coopMatLoad(mins, stage, output_offset(n) * kMinQuads, kMinQuads, kColumnMajor);
    } else {
      coopMatLoad(mins, w_mins, output_offset(n) * kMinStride, kMinStride, kColumnMajor);
    }
#endif
    [[unroll]] for (int m = 0; m < 2; ++m) {
#if HAS_MIN
      AccF32 min_sums = coopMatMulAdd(x_sum[m], mins, AccF32(0));  // exact integers below 2^21
#endif
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(sums[m][n][i]);
#if HAS_MIN
        value = fma(-dmin[i], min_sums[i], value);
#endif
        value = value * x_scale[m][i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
      sums[m][n] = AccI32(0);
    }
  }
}

#include "gemm_epilogue.glsl"

void main() {
  int n_rows = select_tile_and_rows();
  if (n_rows <= 0) return;
  barrier();
  find_load_addresses();
  AccF32 totals[2][2], splits[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) {
    totals[i / 2][i % 2] = splits[i / 2][i % 2] = AccF32(0);
    sums[i / 2][i % 2] = AccI32(0);
  }
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  load_stage(0, 0);
  load_factors(0);
  for (int s = 0; s < n_segments; ++s) {
    int next = min(s + 1, n_segments - 1);
    [[unroll]] for (int g = 0; g < kSegmentGroups; g += kStageGroups) {
      store_stage(g);
      if (g == 0) store_factors();
      barrier();
      load_stage(g == 0 ? s : next, g == 0 ? kStageGroups : 0);
      if (g == 0 && !kOverlaid) load_factors(next);
      multiply_stage();
#if HAS_MIN
      if (g > 0 && kOverlaid) {
        barrier();
        store_overlaid();
        barrier();
        load_factors(next);
      }
#endif
      if (g > 0) end_segment(splits);
      barrier();
    }
    if (s + 1 < (split + 1) * n_segments / n_splits) continue;
    ++split;
    end_split(totals, splits);
  }
  write_results(totals, n_rows);
}
