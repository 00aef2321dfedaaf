// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations, on cooperative matrices of signed bytes: gemm.glsl.
// REQUIRES: half scales. Each half of a group has a scale of its own: weights are unpacked times their scales, 13 bits and a
// sign, once per workgroup, into a plane of bytes of the low seven and one of what is above them (times 128). A segment's sum
// is then one integer sum of each plane. Every sum is made as linear.comp makes it: the results are the same bits. On an H200
// 141 TOP/s (4096 x 4096, 2048 rows); products of half groups, scaled one by one, reach 40.
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

const int kStageGroups = 4, kPlane = 2 * kStageGroups;     // kPlane: of an output, in sixteens of bytes
const int kXStride = kPlane + 1, kWStride = 2 * kPlane + 1;  // likewise
const int kWBegin = kTileRows * kXStride;

shared uvec4 stage[kWBegin + kTileOutputs * kWStride];  // bytes of x, then both planes of the weights; at last the warps' results
shared float w_d[kTileOutputs], x_d[kTileRows];

// ---- from memory to shared memory ----

const int kXLoads = kTileRows * kPlane / kThreads, kWLoads = kTileOutputs * kStageGroups / kThreads;
uint64_t x_from[kXLoads], w_from[kWLoads];
uvec4 x_ahead[kXLoads];
Raw w_ahead[kWLoads];
Header scales_ahead[kWLoads];

void find_sources() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id(), row = row_of[at / kPlane];
    x_from[i] = p.rounded.q + uint64_t(row) * uint64_t(p.rounded.stride) + uint64_t(16 * (at % kPlane));
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) w_from[i] = segment_of((i * kThreads + thread_id()) % kTileOutputs, 0);
}

void load_stage(int s, int first_group) {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    x_ahead[i] = Quads(x_from[i] + uint64_t(s * kSegmentElems + first_group * kGroupElems)).at[0];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), row = at % kTileOutputs % kPanelRows;
    uint64_t segment = w_from[i] + uint64_t(s) * uint64_t(kSegmentBytes);
    w_ahead[i] = load_group(segment, row, first_group + at / kTileOutputs);
    scales_ahead[i] = load_header(segment, row);
  }
}

// Four weights times their scale. Two products share a word: none is negative once 8192 is added.
void split_products(int word, int scale, out uint low, out uint high) {
  uint shifted = uint(word) ^ 0x80808080u, offset = uint(8192 - 128 * scale) * 0x00010001u;
  uint even = (shifted & 0x00FF00FFu) * uint(scale) + offset, odd = (shifted >> 8 & 0x00FF00FFu) * uint(scale) + offset;
  low = (even & 0x007F007Fu) | (odd & 0x007F007Fu) << 8;
  high = uint(minus((even >> 7 & 0x007F007Fu) | (odd << 1 & 0x7F007F00u), 64u));
}

void store_stage(int first_group) {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id();
    stage[at / kPlane * kXStride + at % kPlane] = x_ahead[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), g = at / kTileOutputs, to = kWBegin + at % kTileOutputs * kWStride + 2 * g;
    int w[8];
    uint low[8], high[8];
    expand(w_ahead[i], w);
    [[unroll]] for (int j = 0; j < 8; ++j) {
      split_products(w[j], header_scale(scales_ahead[i], 2 * (first_group + g) + j / 4), low[j], high[j]);
    }
    [[unroll]] for (int h = 0; h < 2; ++h) {
      stage[to + h] = uvec4(low[4 * h], low[4 * h + 1], low[4 * h + 2], low[4 * h + 3]);
      stage[to + kPlane + h] = uvec4(high[4 * h], high[4 * h + 1], high[4 * h + 2], high[4 * h + 3]);
    }
  }
}

// Factors of a segment: the first threads have an output each, the next ones a row of activations.
Header header_ahead;
float x_d_ahead;

void load_factors(int s) {
  int r = thread_id(), row = row_of[clamp(r - kTileOutputs, 0, kTileRows - 1)];
  if (r < kTileOutputs) header_ahead = load_header(segment_of(r, s), r % kPanelRows);
  x_d_ahead = Floats(p.rounded.scale).at[row * (p.rounded.stride / kSegmentElems) + s];
}

void store_factors() {
  int r = thread_id(), row = r - kTileOutputs;
  if (r < kTileOutputs) w_d[r] = header_d(header_ahead);
  if (row >= 0 && row < kTileRows) x_d[row] = x_d_ahead;
}

// ---- a warp's sums ----

Ints16 lows[2][2], highs[2][2];  // of a segment

void begin_segment() {
  [[unroll]] for (int i = 0; i < 4; ++i) lows[i / 2][i % 2] = highs[i / 2][i % 2] = Ints16(0);
}

void multiply_stage() {
  [[unroll]] for (int k = 0; k < kPlane; k += kDepth / 16) {
    Left x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) coopMatLoad(x[m], stage, (warp_row() + m * kTile) * kXStride + k, kXStride, kRowMajor);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      int at = kWBegin + output_at(n) * kWStride + k;
      Right low, high;
      coopMatLoad(low, stage, at, kWStride, kColumnMajor);
      coopMatLoad(high, stage, at + kPlane, kWStride, kColumnMajor);
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
    [[unroll]] for (int m = 0; m < 2; ++m) {
      Floats16 x_scale;
      coopMatLoad(x_scale, x_d, warp_row() + m * kTile, 0, kColumnMajor);
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(lows[m][n][i] + 128 * highs[m][n][i]);
        value = value * x_scale[i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
    }
  }
}

#include "gemm_results.glsl"

void main() {
  int n_rows = find_work();
  if (n_rows <= 0) return;
  barrier();
  find_sources();
  Floats16 totals[2][2], splits[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) totals[i / 2][i % 2] = splits[i / 2][i % 2] = Floats16(0);
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  load_stage(0, 0);
  load_factors(0);
  for (int s = 0; s < n_segments; ++s) {
    begin_segment();
    for (int g = 0; g < kSegmentGroups; g += kStageGroups) {
      bool ends = g + kStageGroups == kSegmentGroups, has_next = s + 1 < n_segments;
      store_stage(g);
      if (g == 0) store_factors();
      barrier();
      if (g == 0 && has_next) load_factors(s + 1);
      if (!ends || has_next) load_stage(ends ? s + 1 : s, ends ? 0 : g + kStageGroups);
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
