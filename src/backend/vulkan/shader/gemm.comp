// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations on int8 cooperative matrices; see gemm.glsl.
// REQUIRES: a quantized format. REQUIRES: one scale per group. Weights are unpacked to bytes once per workgroup. Sums are
// made in the order of linear.comp: results are bit-identical.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "panel.glsl"
#include FORMAT
#include "matmul.glsl"
#include "gemm.glsl"

const int kStageGroups = 4, kScales = 8;
const int kRowStride = 2 * kStageGroups + 1;  // in uvec4 (16 bytes)
const int kWOffset = kTileRows * kRowStride;

const int kStageQuads = kWOffset + kTileOutputs * kRowStride;

// Tiles of x and of the weights; at the end the results.
shared uvec4 stage[kStageQuads > kResultQuads ? kStageQuads : kResultQuads];
#if Q8_BLOCK == 256
shared int w_scales[kScales * kTileOutputs];
shared float w_d[kTileOutputs], x_d[kTileRows];
#if HAS_MIN
shared float w_dmin[kTileOutputs];
shared uvec4 w_mins[2 * kTileOutputs], x_low[2 * kTileRows], x_high[2 * kTileRows];  // x sums of 32 inputs are low + 64 * high
#endif
#else
shared float w_scales[kScales * kTileOutputs], x_scales[kScales * kTileRows];
#if HAS_MIN
shared float w_mins[kScales * kTileOutputs], x_totals[kScales * kTileRows];
#endif
#endif

// ---- global to shared memory ----

const int kXLoads = kTileRows * 2 * kStageGroups / kThreads, kWLoads = (kTileOutputs * kStageGroups + kThreads - 1) / kThreads;
uint x_offsets[kXLoads];
uint64_t w_addresses[kWLoads];
uvec4 x_prefetch[kXLoads];
Raw w_prefetch[kWLoads];

void find_load_addresses() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int item = i * kThreads + thread_id();
    x_offsets[i] = uint(tile_x_rows[item / (2 * kStageGroups)]) * uint(p.q8.stride) + uint(16 * (item % (2 * kStageGroups)));
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) w_addresses[i] = segment_of((i * kThreads + thread_id()) % kTileOutputs, 0);
}

void load_stage(int s, int first_group) {
  uint64_t from = p.q8.q + uint64_t(s * kSegmentElems + first_group * kGroupElems);
  [[unroll]] for (int i = 0; i < kXLoads; ++i) x_prefetch[i] = Quads(from + uint64_t(x_offsets[i])).data[0];
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int item = i * kThreads + thread_id(), row = item % kTileOutputs, g = item / kTileOutputs;
    if (g < kStageGroups) {
      w_prefetch[i] = load_group(w_addresses[i] + uint64_t(s * kSegmentBytes), row % kPanelRows, first_group + g);
    }
  }
}

void store_stage() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int item = i * kThreads + thread_id(), row = item / (2 * kStageGroups), quad = item % (2 * kStageGroups);
    stage[row * kRowStride + quad] = x_prefetch[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int item = i * kThreads + thread_id(), row = item % kTileOutputs, g = item / kTileOutputs;
    if (g >= kStageGroups) continue;
    int w[8], to = kWOffset + row * kRowStride + 2 * g;
    unpack(w_prefetch[i], w);
    stage[to] = uvec4(w[0], w[1], w[2], w[3]);
    stage[to + 1] = uvec4(w[4], w[5], w[6], w[7]);
  }
}

// Scales and sums of a segment: the first threads load one output each, the following ones one row of activations each.
const int kFirstRow = kTileOutputs;
Header header_prefetch;
#if Q8_BLOCK == 256
float x_d_prefetch;
ivec4 x_sums_prefetch[2];
#else
const int kXScales = kScales * kTileRows / kThreads;
float x_scales_prefetch[kXScales];
int x_sums_prefetch[kXScales];
#endif

void load_scales(int s) {
  int r = thread_id();
  if (r < kTileOutputs) header_prefetch = load_header(w_addresses[0] + uint64_t(s * kSegmentBytes), r % kPanelRows);
#if Q8_BLOCK == 256
  int row = tile_x_rows[clamp(r - kFirstRow, 0, kTileRows - 1)];
  x_d_prefetch = Floats(p.q8.scale).data[row * (p.q8.stride / kSegmentElems) + s];
#if HAS_MIN
  uint64_t sums = p.q8.sum + 4ul * uint64_t(row * (p.q8.stride / kGroupElems) + s * kSegmentGroups);
  [[unroll]] for (int i = 0; i < 2; ++i) x_sums_prefetch[i] = ivec4(Quads(sums).data[i]);
#endif
#else
  [[unroll]] for (int i = 0; i < kXScales; ++i) {
    int item = i * kThreads + r;
    int from = tile_x_rows[item % kTileRows] * (p.q8.stride / kGroupElems) + s * kSegmentGroups + item / kTileRows;
    x_scales_prefetch[i] = Floats(p.q8.scale).data[from];
#if HAS_MIN
    x_sums_prefetch[i] = Ints(p.q8.sum).data[from];
#endif
  }
#endif
}

void store_scales() {
  int r = thread_id();
  if (r < kTileOutputs) {
    [[unroll]] for (int g = 0; g < kScales; ++g) w_scales[g * kTileOutputs + r] = header_scale(header_prefetch, g);
#if Q8_BLOCK == 256
    w_d[r] = header_d(header_prefetch);
#if HAS_MIN
    w_dmin[r] = header_dmin(header_prefetch);
    uvec2 mins = uvec2(0);
    [[unroll]] for (int g = 0; g < 8; ++g) mins[g / 4] |= uint(header_min(header_prefetch, g)) << 8 * (g % 4);
    w_mins[2 * r] = uvec4(mins, 0, 0);
#endif
#elif HAS_MIN
    [[unroll]] for (int g = 0; g < kScales; ++g) w_mins[g * kTileOutputs + r] = header_min(header_prefetch, g);
#endif
  }
#if Q8_BLOCK == 256
  int row = r - kFirstRow;
  if (row < 0 || row >= kTileRows) return;
  x_d[row] = x_d_prefetch;
#if HAS_MIN
  uvec2 low = uvec2(0), high = uvec2(0);
  [[unroll]] for (int g = 0; g < 8; ++g) {
    int sum = x_sums_prefetch[g / 4][g % 4], l = ((sum + 32) & 63) - 32;
    low[g / 4] |= uint(l & 255) << 8 * (g % 4);
    high[g / 4] |= uint((sum - l) / 64 & 255) << 8 * (g % 4);
  }
  x_low[2 * row] = uvec4(low, 0, 0);
  x_high[2 * row] = uvec4(high, 0, 0);
#endif
#else
  [[unroll]] for (int i = 0; i < kXScales; ++i) {
    x_scales[i * kThreads + r] = x_scales_prefetch[i];
#if HAS_MIN
    precise float total = x_scales_prefetch[i] * float(x_sums_prefetch[i]);
    x_totals[i * kThreads + r] = total;
#endif
  }
#endif
}

// ---- accumulators of a warp ----

MatA load_x(int m, int quad) {
  MatA x;
  coopMatLoad(x, stage, (warp_row() + m * kTile) * kRowStride + quad, kRowStride, kRowMajor);
  return x;
}
MatB load_w(int n, int quad) {
  MatB w;
  coopMatLoad(w, stage, kWOffset + output_offset(n) * kRowStride + quad, kRowStride, kColumnMajor);
  return w;
}

#if Q8_BLOCK == 256
AccI32 sums[2][2];  // of a segment

void add_scaled(AccI32 dots, AccI32 scale, int m, int n) {
  for (int i = 0; i < dots.length(); ++i) sums[m][n][i] += scale[i] * dots[i];
}

void multiply_group(int g, int in_segment) {
  AccI32 dots[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) dots[i / 2][i % 2] = AccI32(0);
  [[unroll]] for (int k = 0; k < 32 / kDepth; ++k) {
    MatA x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) x[m] = load_x(m, 2 * g + k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      MatB w = load_w(n, 2 * g + k);
      [[unroll]] for (int m = 0; m < 2; ++m) dots[m][n] = coopMatMulAdd(x[m], w, dots[m][n]);
    }
  }
  [[unroll]] for (int n = 0; n < 2; ++n) {
    AccI32 scale;
    coopMatLoad(scale, w_scales, in_segment * kTileOutputs + output_offset(n), 0, kRowMajor);
    [[unroll]] for (int m = 0; m < 2; ++m) add_scaled(dots[m][n], scale, m, n);
  }
}

void begin_segment() {
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = AccI32(0);
}

void end_segment(inout AccF32 totals[2][2]) {
  [[unroll]] for (int n = 0; n < 2; ++n) {
    AccF32 d;
    coopMatLoad(d, w_d, output_offset(n), 0, kRowMajor);
#if HAS_MIN
    AccF32 dmin;
    MatB mins;
    coopMatLoad(dmin, w_dmin, output_offset(n), 0, kRowMajor);
    coopMatLoad(mins, w_mins, 2 * output_offset(n), 2, kColumnMajor);
#endif
    [[unroll]] for (int m = 0; m < 2; ++m) {
      AccF32 x_scale;
      coopMatLoad(x_scale, x_d, warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
      MatA low, high;
      coopMatLoad(low, x_low, 2 * (warp_row() + m * kTile), 2, kRowMajor);
      coopMatLoad(high, x_high, 2 * (warp_row() + m * kTile), 2, kRowMajor);
      AccI32 lows = coopMatMulAdd(low, mins, AccI32(0)), highs = coopMatMulAdd(high, mins, AccI32(0));
#endif
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(sums[m][n][i]);
#if HAS_MIN
        value = fma(-dmin[i], float(lows[i] + 64 * highs[i]), value);
#endif
        value = value * x_scale[i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
    }
  }
}
#else
AccF32 sums[2][2];

void multiply_group(int g, int in_segment) {
  AccI32 dots[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) dots[i / 2][i % 2] = AccI32(0);
  [[unroll]] for (int k = 0; k < 32 / kDepth; ++k) {
    MatA x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) x[m] = load_x(m, 2 * g + k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      MatB w = load_w(n, 2 * g + k);
      [[unroll]] for (int m = 0; m < 2; ++m) dots[m][n] = coopMatMulAdd(x[m], w, dots[m][n]);
    }
  }
  [[unroll]] for (int m = 0; m < 2; ++m) {
    AccF32 x_scale;
    coopMatLoad(x_scale, x_scales, in_segment * kTileRows + warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
    AccF32 x_total;
    coopMatLoad(x_total, x_totals, in_segment * kTileRows + warp_row() + m * kTile, 0, kColumnMajor);
#endif
    [[unroll]] for (int n = 0; n < 2; ++n) {
      AccF32 w_scale;
      coopMatLoad(w_scale, w_scales, in_segment * kTileOutputs + output_offset(n), 0, kRowMajor);
#if HAS_MIN
      AccF32 w_min;
      coopMatLoad(w_min, w_mins, in_segment * kTileOutputs + output_offset(n), 0, kRowMajor);
#endif
      for (int i = 0; i < w_scale.length(); ++i) {
        precise float scale = w_scale[i] * x_scale[i];
        precise float value = fma(float(dots[m][n][i]), scale, sums[m][n][i]);
#if HAS_MIN
        value = fma(w_min[i], x_total[i], value);
#endif
        sums[m][n][i] = value;
      }
    }
  }
}

void begin_segment() {
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = AccF32(0);
}

void end_segment(inout AccF32 totals[2][2]) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < totals[0][0].length(); ++i) {
      precise float value = totals[t / 2][t % 2][i] + sums[t / 2][t % 2][i];
      totals[t / 2][t % 2][i] = value;
    }
  }
}
#endif

// ---- main loop ----

void clear_padding() {
#if Q8_BLOCK == 256 && HAS_MIN
  for (int r = thread_id(); r < kTileOutputs; r += kThreads) w_mins[2 * r + 1] = uvec4(0);
  for (int r = thread_id(); r < kTileRows; r += kThreads) x_low[2 * r + 1] = x_high[2 * r + 1] = uvec4(0);
#endif
}

#include "gemm_epilogue.glsl"

void main() {
  int n_rows = select_tile_and_rows();
  if (n_rows <= 0) return;
  clear_padding();
  barrier();
  AccF32 totals[2][2], splits[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) totals[i / 2][i % 2] = splits[i / 2][i % 2] = AccF32(0);
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  find_load_addresses();
  load_stage(0, 0);
  load_scales(0);
  for (int s = 0; s < n_segments; ++s) {
    int next = min(s + 1, n_segments - 1);
    begin_segment();
    [[unroll]] for (int g = 0; g < kSegmentGroups; g += kStageGroups) {
      store_stage();
      if (g == 0) store_scales();
      barrier();
      if (g == 0) load_scales(next);
      load_stage(g == 0 ? s : next, g == 0 ? kStageGroups : 0);
      [[unroll]] for (int i = 0; i < kStageGroups; ++i) multiply_group(i, g + i);
      if (g > 0) end_segment(splits);
      barrier();
    }
    if (s + 1 < (split + 1) * n_segments / n_splits) continue;
    ++split;
    end_split(totals, splits);
  }
  write_results(totals, n_rows);
}
