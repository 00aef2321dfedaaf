// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations, on cooperative matrices of signed bytes: gemm.glsl.
// REQUIRES: a rounded format. REQUIRES: one scale a group. Weights are unpacked to bytes once per workgroup. Every sum is made
// as linear.comp makes it: the results are the same bits.
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

const int kStageGroups = 4, kScales = 8;
const int kRowStride = 2 * kStageGroups + 1;  // of a row, in sixteens of bytes
const int kWBegin = kTileRows * kRowStride;

const int kStageRoom = kWBegin + kTileOutputs * kRowStride;

// Bytes of x, then of the weights; at last the results.
shared uvec4 stage[kStageRoom > kResultRoom ? kStageRoom : kResultRoom];
#if ROUNDED_BLOCK == 256
shared int w_scales[kScales * kTileOutputs];
shared float w_d[kTileOutputs], x_d[kTileRows];
#if HAS_MIN
shared float w_dmin[kTileOutputs];
shared uvec4 w_mins[2 * kTileOutputs], x_low[2 * kTileRows], x_high[2 * kTileRows];  // sums of 32 inputs are low + 64 * high
#endif
#else
shared float w_scales[kScales * kTileOutputs], x_scales[kScales * kTileRows];
#if HAS_MIN
shared float w_mins[kScales * kTileOutputs], x_totals[kScales * kTileRows];
#endif
#endif

// ---- from memory to shared memory ----

const int kXLoads = kTileRows * 2 * kStageGroups / kThreads, kWLoads = (kTileOutputs * kStageGroups + kThreads - 1) / kThreads;
uint x_at[kXLoads];
uint64_t w_at[kWLoads];
uvec4 x_ahead[kXLoads];
Raw w_ahead[kWLoads];

void find_sources() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id();
    x_at[i] = uint(row_of[at / (2 * kStageGroups)]) * uint(p.rounded.stride) + uint(16 * (at % (2 * kStageGroups)));
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) w_at[i] = segment_of((i * kThreads + thread_id()) % kTileOutputs, 0);
}

void load_stage(int s, int first_group) {
  uint64_t from = p.rounded.q + uint64_t(s * kSegmentElems + first_group * kGroupElems);
  [[unroll]] for (int i = 0; i < kXLoads; ++i) x_ahead[i] = Quads(from + uint64_t(x_at[i])).at[0];
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), row = at % kTileOutputs, g = at / kTileOutputs;
    if (g < kStageGroups) w_ahead[i] = load_group(w_at[i] + uint64_t(s * kSegmentBytes), row % kPanelRows, first_group + g);
  }
}

void store_stage() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id(), row = at / (2 * kStageGroups), sixteen = at % (2 * kStageGroups);
    stage[row * kRowStride + sixteen] = x_ahead[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), row = at % kTileOutputs, g = at / kTileOutputs;
    if (g >= kStageGroups) continue;
    int w[8], to = kWBegin + row * kRowStride + 2 * g;
    expand(w_ahead[i], w);
    stage[to] = uvec4(w[0], w[1], w[2], w[3]);
    stage[to + 1] = uvec4(w[4], w[5], w[6], w[7]);
  }
}

// Scales and sums of a segment: the first threads have an output each, the next ones a row of activations.
const int kFirstRow = kTileOutputs;
Header header_ahead;
#if ROUNDED_BLOCK == 256
float x_d_ahead;
ivec4 x_sums_ahead[2];
#else
const int kXScales = kScales * kTileRows / kThreads;
float x_scales_ahead[kXScales];
int x_sums_ahead[kXScales];
#endif

void load_scales(int s) {
  int r = thread_id();
  if (r < kTileOutputs) header_ahead = load_header(w_at[0] + uint64_t(s * kSegmentBytes), r % kPanelRows);
#if ROUNDED_BLOCK == 256
  int row = row_of[clamp(r - kFirstRow, 0, kTileRows - 1)];
  x_d_ahead = Floats(p.rounded.scale).at[row * (p.rounded.stride / kSegmentElems) + s];
#if HAS_MIN
  uint64_t sums = p.rounded.sum + 4ul * uint64_t(row * (p.rounded.stride / kGroupElems) + s * kSegmentGroups);
  [[unroll]] for (int i = 0; i < 2; ++i) x_sums_ahead[i] = ivec4(Quads(sums).at[i]);
#endif
#else
  [[unroll]] for (int i = 0; i < kXScales; ++i) {
    int at = i * kThreads + r;
    int from = row_of[at % kTileRows] * (p.rounded.stride / kGroupElems) + s * kSegmentGroups + at / kTileRows;
    x_scales_ahead[i] = Floats(p.rounded.scale).at[from];
#if HAS_MIN
    x_sums_ahead[i] = Ints(p.rounded.sum).at[from];
#endif
  }
#endif
}

void store_scales() {
  int r = thread_id();
  if (r < kTileOutputs) {
    [[unroll]] for (int g = 0; g < kScales; ++g) w_scales[g * kTileOutputs + r] = header_scale(header_ahead, g);
#if ROUNDED_BLOCK == 256
    w_d[r] = header_d(header_ahead);
#if HAS_MIN
    w_dmin[r] = header_dmin(header_ahead);
    uvec2 mins = uvec2(0);
    [[unroll]] for (int g = 0; g < 8; ++g) mins[g / 4] |= uint(header_min(header_ahead, g)) << 8 * (g % 4);
    w_mins[2 * r] = uvec4(mins, 0, 0);
#endif
#elif HAS_MIN
    [[unroll]] for (int g = 0; g < kScales; ++g) w_mins[g * kTileOutputs + r] = header_min(header_ahead, g);
#endif
  }
#if ROUNDED_BLOCK == 256
  int row = r - kFirstRow;
  if (row < 0 || row >= kTileRows) return;
  x_d[row] = x_d_ahead;
#if HAS_MIN
  uvec2 low = uvec2(0), high = uvec2(0);
  [[unroll]] for (int g = 0; g < 8; ++g) {
    int sum = x_sums_ahead[g / 4][g % 4], l = ((sum + 32) & 63) - 32;
    low[g / 4] |= uint(l & 255) << 8 * (g % 4);
    high[g / 4] |= uint((sum - l) / 64 & 255) << 8 * (g % 4);
  }
  x_low[2 * row] = uvec4(low, 0, 0);
  x_high[2 * row] = uvec4(high, 0, 0);
#endif
#else
  [[unroll]] for (int i = 0; i < kXScales; ++i) {
    x_scales[i * kThreads + r] = x_scales_ahead[i];
#if HAS_MIN
    precise float total = x_scales_ahead[i] * float(x_sums_ahead[i]);
    x_totals[i * kThreads + r] = total;
#endif
  }
#endif
}

// ---- a warp's sums ----

Left load_x(int m, int sixteen) {
  Left x;
  coopMatLoad(x, stage, (warp_row() + m * kTile) * kRowStride + sixteen, kRowStride, kRowMajor);
  return x;
}
Right load_w(int n, int sixteen) {
  Right w;
  coopMatLoad(w, stage, kWBegin + output_at(n) * kRowStride + sixteen, kRowStride, kColumnMajor);
  return w;
}

#if ROUNDED_BLOCK == 256
Ints16 sums[2][2];  // of a segment

void add_scaled(Ints16 products, Ints16 scale, int m, int n) {
  for (int i = 0; i < products.length(); ++i) sums[m][n][i] += scale[i] * products[i];
}

void multiply_group(int g, int in_segment) {
  Ints16 products[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) products[i / 2][i % 2] = Ints16(0);
  [[unroll]] for (int k = 0; k < 32 / kDepth; ++k) {
    Left x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) x[m] = load_x(m, 2 * g + k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      Right w = load_w(n, 2 * g + k);
      [[unroll]] for (int m = 0; m < 2; ++m) products[m][n] = coopMatMulAdd(x[m], w, products[m][n]);
    }
  }
  [[unroll]] for (int n = 0; n < 2; ++n) {
    Ints16 scale;
    coopMatLoad(scale, w_scales, in_segment * kTileOutputs + output_at(n), 0, kRowMajor);
    [[unroll]] for (int m = 0; m < 2; ++m) add_scaled(products[m][n], scale, m, n);
  }
}

void begin_segment() {
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = Ints16(0);
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
      coopMatLoad(low, x_low, 2 * (warp_row() + m * kTile), 2, kRowMajor);
      coopMatLoad(high, x_high, 2 * (warp_row() + m * kTile), 2, kRowMajor);
      Ints16 lows = coopMatMulAdd(low, mins, Ints16(0)), highs = coopMatMulAdd(high, mins, Ints16(0));
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
Floats16 sums[2][2];

void multiply_group(int g, int in_segment) {
  Ints16 products[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) products[i / 2][i % 2] = Ints16(0);
  [[unroll]] for (int k = 0; k < 32 / kDepth; ++k) {
    Left x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) x[m] = load_x(m, 2 * g + k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      Right w = load_w(n, 2 * g + k);
      [[unroll]] for (int m = 0; m < 2; ++m) products[m][n] = coopMatMulAdd(x[m], w, products[m][n]);
    }
  }
  [[unroll]] for (int m = 0; m < 2; ++m) {
    Floats16 x_scale;
    coopMatLoad(x_scale, x_scales, in_segment * kTileRows + warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
    Floats16 x_total;
    coopMatLoad(x_total, x_totals, in_segment * kTileRows + warp_row() + m * kTile, 0, kColumnMajor);
#endif
    [[unroll]] for (int n = 0; n < 2; ++n) {
      Floats16 w_scale;
      coopMatLoad(w_scale, w_scales, in_segment * kTileOutputs + output_at(n), 0, kRowMajor);
#if HAS_MIN
      Floats16 w_min;
      coopMatLoad(w_min, w_mins, in_segment * kTileOutputs + output_at(n), 0, kRowMajor);
#endif
      for (int i = 0; i < w_scale.length(); ++i) {
        precise float scale = w_scale[i] * x_scale[i];
        precise float value = fma(float(products[m][n][i]), scale, sums[m][n][i]);
#if HAS_MIN
        value = fma(w_min[i], x_total[i], value);
#endif
        sums[m][n][i] = value;
      }
    }
  }
}

void begin_segment() {
  [[unroll]] for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = Floats16(0);
}

void end_segment(inout Floats16 totals[2][2]) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < totals[0][0].length(); ++i) {
      precise float value = totals[t / 2][t % 2][i] + sums[t / 2][t % 2][i];
      totals[t / 2][t % 2][i] = value;
    }
  }
}
#endif

// ---- the whole ----

void clear_padding() {
#if ROUNDED_BLOCK == 256 && HAS_MIN
  for (int r = thread_id(); r < kTileOutputs; r += kThreads) w_mins[2 * r + 1] = uvec4(0);
  for (int r = thread_id(); r < kTileRows; r += kThreads) x_low[2 * r + 1] = x_high[2 * r + 1] = uvec4(0);
#endif
}

#include "gemm_results.glsl"

void main() {
  int n_rows = find_work();
  if (n_rows <= 0) return;
  clear_padding();
  barrier();
  Floats16 totals[2][2], splits[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) totals[i / 2][i % 2] = splits[i / 2][i % 2] = Floats16(0);
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  find_sources();
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
