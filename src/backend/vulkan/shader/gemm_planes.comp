// out[m, o] = sum_k x[m, k] * weight[o, k] for many rows of activations, on cooperative matrices of signed bytes: gemm.glsl.
// REQUIRES: a scale for 256 inputs. Weights are unpacked times their groups' whole-numbered scales, once per workgroup, into
// two planes of bytes of which the higher counts kHighFactor times: a segment's sum is then one integer sum of each plane.
// Every sum is made as linear.comp makes it: the results are the same bits. Where the next loads are from is found ahead of
// the loop, and both halves of a segment are written out: what the loop does beside its products is what it waits for.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"
#include "gemm.glsl"

const int kHalf = kSegmentGroups / 2;                   // groups of a stage
const int kPlane = 2 * kHalf, kRowStride = kPlane + 1;  // of a row or an output in a plane, in sixteens of bytes
const int kLowBegin = kTileRows * kRowStride, kHighBegin = kLowBegin + kTileOutputs * kRowStride;
const int kStageRoom = kHighBegin + kTileOutputs * kRowStride;

// Bytes of x, then both planes of the weights; at last the results.
shared uvec4 stage[kStageRoom > kResultRoom ? kStageRoom : kResultRoom];
shared float w_d[kTileOutputs], x_d[kTileRows];
#if HAS_MIN
// For each group, minima twice, and sums of the inputs as low + high with a low of six bits: halves hold all of them.
const int kMinStride = 24, kMinQuads = kMinStride / 8;  // of an output or a row, in halves and in sixteens of bytes
// Beside both planes of 128 outputs there is no room for them in 48 KB: they lie where the stage was, once it is multiplied.
const bool kOverlaid = kWarpRows == 2;
const int kSumsBegin = kTileOutputs * kMinQuads;
#define LeftHalves coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseA>
#define RightHalves coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseB>
shared float w_dmin[kTileOutputs];
shared float16_t w_mins[kOverlaid ? 1 : kTileOutputs * kMinStride];
shared uvec2 x_sums[kOverlaid ? 1 : kTileRows * kMinStride / 4];
Header header_kept;  // of the segment at hand and output thread_id() % kTileOutputs, where overlaid
#else
const bool kOverlaid = false;
#endif

// ---- from memory to shared memory ----

const int kXLoads = kTileRows * kPlane / kThreads, kWLoads = kTileOutputs * kHalf / kThreads;
uint x_at[kXLoads], x_d_at;
uint64_t w_at[kWLoads];
uvec4 x_ahead[kXLoads];
Raw w_ahead[kWLoads];
Header header_ahead[kWLoads];
float x_d_ahead;
ivec4 x_sums_ahead;

void find_sources() {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id();
    x_at[i] = uint(row_of[at / kPlane]) * uint(p.rounded.stride) + uint(16 * (at % kPlane));
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) w_at[i] = segment_of((i * kThreads + thread_id()) % kTileOutputs, 0);
  x_d_at = uint(row_of[thread_id() / 2 % kTileRows] * (p.rounded.stride / kSegmentElems));
}

void load_stage(int s, int first_group) {
  uint64_t from = p.rounded.q + uint64_t(s * kSegmentElems + first_group * kGroupElems);
  [[unroll]] for (int i = 0; i < kXLoads; ++i) x_ahead[i] = Quads(from + uint64_t(x_at[i])).at[0];
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), row = at % kTileOutputs % kPanelRows;
    uint64_t segment = w_at[i] + uint64_t(s * kSegmentBytes);
    w_ahead[i] = load_group(segment, row, first_group + at / kTileOutputs);
    header_ahead[i] = load_header(segment, row);
  }
}

#ifdef NIBBLES
// A scale's low and high three bits: no product with one needs more than seven.
const int kHighFactor = 8;
void split_group(Raw n, Header h, int g, out uint low[8], out uint high[8]) {
  uint scale = uint(header_scale(h, g));
  [[unroll]] for (int i = 0; i < 8; ++i) {
    uint four = n[i % 4] >> 4 * (i / 4) & 0x0F0F0F0Fu;
    low[i] = four * (scale & 7u);
    high[i] = four * (scale >> 3);
  }
}
#else
// The low seven bits of products of 13 bits and a sign, and what is above them. Two products share a word: none is negative
// once 8192 is added.
const int kHighFactor = 128;
void split_group(Raw raw, Header h, int g, out uint low[8], out uint high[8]) {
  int w[8];
  expand(raw, w);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    int scale = HALF_SCALES != 0 ? header_scale(h, 2 * g + i / 4) : header_scale(h, g);
    uint shifted = uint(w[i]) ^ 0x80808080u, offset = uint(8192 - 128 * scale) * 0x00010001u;
    uint even = (shifted & 0x00FF00FFu) * uint(scale) + offset, odd = (shifted >> 8 & 0x00FF00FFu) * uint(scale) + offset;
    low[i] = (even & 0x007F007Fu) | (odd & 0x007F007Fu) << 8;
    high[i] = uint(minus((even >> 7 & 0x007F007Fu) | (odd << 1 & 0x7F007F00u), 64u));
  }
}
#endif

void store_stage(int first_group) {
  [[unroll]] for (int i = 0; i < kXLoads; ++i) {
    int at = i * kThreads + thread_id();
    stage[at / kPlane * kRowStride + at % kPlane] = x_ahead[i];
  }
  [[unroll]] for (int i = 0; i < kWLoads; ++i) {
    int at = i * kThreads + thread_id(), o = at % kTileOutputs, g = at / kTileOutputs, to = kLowBegin + o * kRowStride + 2 * g;
    uint low[8], high[8];
    split_group(w_ahead[i], header_ahead[i], first_group + g, low, high);
    [[unroll]] for (int h = 0; h < 2; ++h) {
      stage[to + h] = uvec4(low[4 * h], low[4 * h + 1], low[4 * h + 2], low[4 * h + 3]);
      stage[to + h + kHighBegin - kLowBegin] = uvec4(high[4 * h], high[4 * h + 1], high[4 * h + 2], high[4 * h + 3]);
    }
#if HAS_MIN
    if (!kOverlaid) {
      float16_t least = float16_t(header_min(header_ahead[i], first_group + g));
      w_mins[o * kMinStride + first_group + g] = w_mins[o * kMinStride + 8 + first_group + g] = least;
    }
    if (first_group + g == 0) w_dmin[o] = header_dmin(header_ahead[i]);
#endif
    if (first_group + g == 0) w_d[o] = header_d(header_ahead[i]);
  }
#if HAS_MIN
  if (kOverlaid) header_kept = header_ahead[0];
#endif
}

// Of a segment's rows: two threads have one.
void load_factors(int s) {
  uint at = x_d_at + uint(s);
  x_d_ahead = Floats(p.rounded.scale + 4ul * uint64_t(at)).at[0];
#if HAS_MIN
  x_sums_ahead = ivec4(Quads(p.rounded.sum + 16ul * uint64_t(2u * at + uint(thread_id() & 1))).at[0]);
#endif
}

#if HAS_MIN
// The low and the high parts of the thread's four sums.
void split_sums(out uvec2 low, out uvec2 high) {
  ivec4 lows = ((x_sums_ahead + 32) & 63) - 32;
  vec4 l = vec4(lows), h = vec4(x_sums_ahead - lows);
  low = uvec2(packHalf2x16(l.xy), packHalf2x16(l.zw));
  high = uvec2(packHalf2x16(h.xy), packHalf2x16(h.zw));
}
#endif

void store_factors() {
  int row = thread_id() / 2, side = thread_id() & 1;
  if (row >= kTileRows) return;
  if (side == 0) x_d[row] = x_d_ahead;
#if HAS_MIN
  if (kOverlaid) return;
  int to = row * (kMinStride / 4) + side;
  split_sums(x_sums[to], x_sums[to + 2]);
#endif
}

#if HAS_MIN
// Minima and sums over the stage. REQUIRES: it has been multiplied; load_factors() of this segment was the last.
void store_overlaid() {
  int o = thread_id() % kTileOutputs;
  for (int k = thread_id() / kTileOutputs; k < kSegmentGroups / 2; k += kThreads / kTileOutputs) {
    uint two = packHalf2x16(vec2(header_min(header_kept, 2 * k), header_min(header_kept, 2 * k + 1)));
    stage[o * kMinQuads][k] = two;
    stage[o * kMinQuads + 1][k] = two;
  }
  int to = kSumsBegin + thread_id() / 2 * kMinQuads, side = thread_id() & 1;
  if (thread_id() >= 2 * kTileRows) return;
  uvec2 low, high;
  split_sums(low, high);
  [[unroll]] for (int k = 0; k < 2; ++k) {
    stage[to][2 * side + k] = low[k];
    stage[to + 1][2 * side + k] = high[k];
  }
}
#endif

// ---- a warp's sums ----

Ints16 sums[2][2];  // of a segment

void multiply_stage() {
  Ints16 high_sums[2][2];
  [[unroll]] for (int i = 0; i < 4; ++i) high_sums[i / 2][i % 2] = Ints16(0);
  [[unroll]] for (int k = 0; k < kPlane; k += kDepth / 16) {
    Left x[2];
    [[unroll]] for (int m = 0; m < 2; ++m) {
      coopMatLoad(x[m], stage, (warp_row() + m * kTile) * kRowStride + k, kRowStride, kRowMajor);
    }
    [[unroll]] for (int n = 0; n < 2; ++n) {
      int at = output_at(n) * kRowStride + k;
      Right low, high;
      coopMatLoad(low, stage, kLowBegin + at, kRowStride, kColumnMajor);
      coopMatLoad(high, stage, kHighBegin + at, kRowStride, kColumnMajor);
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

void end_segment(inout Floats16 totals[2][2]) {
  Floats16 x_scale[2];
  [[unroll]] for (int m = 0; m < 2; ++m) coopMatLoad(x_scale[m], x_d, warp_row() + m * kTile, 0, kColumnMajor);
#if HAS_MIN
  LeftHalves x_sum[2];
  [[unroll]] for (int m = 0; m < 2; ++m) {
    int row = warp_row() + m * kTile;
    if (kOverlaid) {
      coopMatLoad(x_sum[m], stage, kSumsBegin + row * kMinQuads, kMinQuads, kRowMajor);
    } else {
      coopMatLoad(x_sum[m], x_sums, row * (kMinStride / 4), kMinStride / 4, kRowMajor);
    }
  }
#endif
  [[unroll]] for (int n = 0; n < 2; ++n) {
    Floats16 d;
    coopMatLoad(d, w_d, output_at(n), 0, kRowMajor);
#if HAS_MIN
    Floats16 dmin;
    RightHalves mins;
    coopMatLoad(dmin, w_dmin, output_at(n), 0, kRowMajor);
    if (kOverlaid) {
      coopMatLoad(mins, stage, output_at(n) * kMinQuads, kMinQuads, kColumnMajor);
    } else {
      coopMatLoad(mins, w_mins, output_at(n) * kMinStride, kMinStride, kColumnMajor);
    }
#endif
    [[unroll]] for (int m = 0; m < 2; ++m) {
#if HAS_MIN
      Floats16 least = coopMatMulAdd(x_sum[m], mins, Floats16(0));  // whole numbers below 2^21
#endif
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(sums[m][n][i]);
#if HAS_MIN
        value = fma(-dmin[i], least[i], value);
#endif
        value = value * x_scale[m][i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
      sums[m][n] = Ints16(0);
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
  [[unroll]] for (int i = 0; i < 4; ++i) {
    totals[i / 2][i % 2] = splits[i / 2][i % 2] = Floats16(0);
    sums[i / 2][i % 2] = Ints16(0);
  }
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits, split = 0;
  load_stage(0, 0);
  load_factors(0);
  for (int s = 0; s < n_segments; ++s) {
    int next = min(s + 1, n_segments - 1);
    [[unroll]] for (int g = 0; g < kSegmentGroups; g += kHalf) {
      store_stage(g);
      if (g == 0) store_factors();
      barrier();
      load_stage(g == 0 ? s : next, g == 0 ? kHalf : 0);
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
