// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations, on cooperative matrices of signed bytes: gemm.glsl.
// REQUIRES: integer scales; weights times their scales, in planes.comp's two planes. A segment's sum is then one integer sum
// of each plane: no scale is met before the segment's end. Every sum is made as linear.comp makes it: the results are the same
// bits. A stage is 128 inputs; the next one is on its way meanwhile, 32 KB for each workgroup.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"
#include "gemm.glsl"

const int kStageElems = 128, kStages = kSegmentElems / kStageElems, kSixteens = kStageElems / 16;
const int kXStride = kSixteens + 1, kWStride = 2 * kSixteens + 1;  // in sixteens of bytes
const int kWBegin = kTileRows * kXStride;

shared uvec4 stage[kWBegin + kTileOutputs * kWStride];  // bytes of x, then both planes of the weights; at last results
shared float w_d[kTileOutputs], x_d[kTileRows];
#if HAS_MIN
shared float w_dmin[kTileOutputs];
// Sums of 32 inputs are low + 64 * high. A matrix reads 32 bytes of a row: half of them are the next row's, times zero.
shared uvec4 w_mins[2 * kTileOutputs], x_low[kTileRows + 1], x_high[kTileRows + 1];
#endif

const int kXLoads = kTileRows * kSixteens / kThreads, kWLoads = 2 * kTileOutputs * kSixteens / kThreads;
uvec4 x_ahead[kXLoads], w_ahead[kWLoads];
uint64_t w_from[2];  // of the thread's first row of each half of the outputs: a gate's are one part, its up's another

void find_sources() {
  [[unroll]] for (int h = 0; h < 2; ++h) {
    int at = thread_id(), r = h * kTileOutputs / 2 + at / (2 * kSixteens), which, panel = panel_of(r, which);
    uint64_t row = uint64_t(panel * kPanelRows + r % kPanelRows) * uint64_t(p.parts[which].n_segments);
    w_from[h] = p.planes[which] + row * uint64_t(2 * kSegmentElems) + uint64_t(at / kSixteens % 2 * kSegmentElems + 16 * (at % kSixteens));
  }
}

void load_stage(int s, int at) {
  const int kXRows = kThreads / kSixteens, kWRows = kThreads / (2 * kSixteens), kHalf = kWLoads / 2;
  uint64_t x = p.rounded.q + uint64_t(s * kSegmentElems + at * kStageElems + 16 * (thread_id() % kSixteens));
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int row = row_of[i * kXRows + thread_id() / kSixteens];
    x_ahead[i] = Quads(x + uint64_t(row) * uint64_t(p.rounded.stride)).at[0];
  }
  int row_bytes = p.parts[0].n_segments * 2 * kSegmentElems;
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    uint64_t row = w_from[i / kHalf] + uint64_t(i % kHalf * kWRows * row_bytes);
    w_ahead[i] = Quads(row + uint64_t(s * 2 * kSegmentElems + at * kStageElems)).at[0];
  }
}

void store_stage() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id();
    stage[at / kSixteens * kXStride + at % kSixteens] = x_ahead[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id();
    stage[kWBegin + at / (2 * kSixteens) * kWStride + at % (2 * kSixteens)] = w_ahead[i];
  }
}

// Scales and sums of a segment: the first threads have an output each, the next ones a row of activations.
Header header_ahead;
float x_d_ahead;
ivec4 x_sums_ahead[2];

void load_scales(int s) {
  int r = thread_id();
  if (r < kTileOutputs) header_ahead = load_header(segment_of(r, s), r % kPanelRows);
  int row = row_of[clamp(r - kTileOutputs, 0, kTileRows - 1)];
  x_d_ahead = Floats(p.rounded.scale).at[row * (p.rounded.stride / kSegmentElems) + s];
#if HAS_MIN
  uint64_t sums = p.rounded.sum + 4ul * uint64_t(row * (p.rounded.stride / kGroupElems) + s * kSegmentGroups);
  [[unroll]] for (int i = 0; i < 2; ++i) x_sums_ahead[i] = ivec4(Quads(sums).at[i]);
#endif
}

void store_scales() {
  int r = thread_id(), row = r - kTileOutputs;
  if (r < kTileOutputs) {
    w_d[r] = header_d(header_ahead);
#if HAS_MIN
    w_dmin[r] = header_dmin(header_ahead);
    uvec2 mins = uvec2(0);
    [[unroll]] for (int g = 0; g < 8; ++g) mins[g / 4] |= uint(header_min(header_ahead, g)) << 8 * (g % 4);
    w_mins[2 * r] = uvec4(mins, 0, 0);
#endif
  }
  if (row < 0 || row >= kTileRows) return;
  x_d[row] = x_d_ahead;
#if HAS_MIN
  uvec2 low = uvec2(0), high = uvec2(0);
  [[unroll]] for (int g = 0; g < 8; ++g) {
    int sum = x_sums_ahead[g / 4][g % 4], l = ((sum + 32) & 63) - 32;
    low[g / 4] |= uint(l & 255) << 8 * (g % 4);
    high[g / 4] |= uint((sum - l) / 64 & 255) << 8 * (g % 4);
  }
  x_low[row] = uvec4(low, 0, 0);
  x_high[row] = uvec4(high, 0, 0);
#endif
}

void clear_padding() {
#if HAS_MIN
  for (int r = thread_id(); r < kTileOutputs; r += kThreads) w_mins[2 * r + 1] = uvec4(0);
  if (thread_id() == 0) x_low[kTileRows] = x_high[kTileRows] = uvec4(0);
#endif
}

Ints16 lows[2][2], highs[2][2];  // of a segment

void multiply_stage() {
  [[unroll]] for (int k = 0; k < kSixteens; k += kDepth / 16) {
    Left x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) {
      coopMatLoad(x[m], stage, (warp_row() + m * kTile) * kXStride + k, kXStride, kRowMajor);
    }
    [[unroll]] for (int n = 0; n < 2; ++n) {
      int at = kWBegin + output_at(n) * kWStride + k;
      Right low, high;
      coopMatLoad(low, stage, at, kWStride, kColumnMajor);
      coopMatLoad(high, stage, at + kSixteens, kWStride, kColumnMajor);
      [[unroll]] for (int m = 0; m < 2; ++m) {
        lows[m][n] = coopMatMulAdd(x[m], low, lows[m][n]);
        highs[m][n] = coopMatMulAdd(x[m], high, highs[m][n]);
      }
    }
  }
}

void end_segment(inout Floats16 totals[2][2]) {
  [[unroll]] for (int n = 0; n < 2; ++n) {
    Floats16 d;
    coopMatLoad(d, w_d, output_at(n), 0, kRowMajor);
#if HAS_MIN
    Floats16 dmin;
    Right mins;
    coopMatLoad(dmin, w_dmin, output_at(n), 0, kRowMajor);
    coopMatLoad(mins, w_mins, 2 * output_at(n), 2, kColumnMajor);
#endif
    [[unroll]] for (int m = 0; m < 2; ++m) {
      Floats16 x_scale;
      coopMatLoad(x_scale, x_d, warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
      Left low, high;
      coopMatLoad(low, x_low, warp_row() + m * kTile, 1, kRowMajor);
      coopMatLoad(high, x_high, warp_row() + m * kTile, 1, kRowMajor);
      Ints16 min_lows = coopMatMulAdd(low, mins, Ints16(0)), min_highs = coopMatMulAdd(high, mins, Ints16(0));
#endif
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(lows[m][n][i] + 128 * highs[m][n][i]);
#if HAS_MIN
        value = fma(-dmin[i], float(min_lows[i] + 64 * min_highs[i]), value);
#endif
        value = value * x_scale[i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
      lows[m][n] = highs[m][n] = Ints16(0);
    }
  }
}

#include "gemm_results.glsl"

void main() {
  int n_rows = find_work();
  if (n_rows <= 0) return;
  clear_padding();
  barrier();
  find_sources();
  Floats16 totals[2][2], splits[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) {
    totals[i / 2][i % 2] = splits[i / 2][i % 2] = Floats16(0);
    lows[i / 2][i % 2] = highs[i / 2][i % 2] = Ints16(0);
  }
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  load_stage(0, 0);
  load_scales(0);
  for (int s = 0; s < n_segments; ++s) {
    bool has_next = s + 1 < n_segments;
    [[unroll]] for (int i = 0; i < kStages; ++i) {
      bool ends = i + 1 == kStages;
      store_stage();
      if (i == 0) store_scales();
      barrier();
      if (!ends || has_next) load_stage(ends ? s + 1 : s, (i + 1) % kStages);
      if (ends && has_next) load_scales(s + 1);
      multiply_stage();
      if (ends) end_segment(splits);
      barrier();
    }
    if (s + 1 < (split + 1) * n_segments / n_splits) continue;
    ++split;
    end_split(totals, splits);
  }
  write_results(totals, n_rows);
}
