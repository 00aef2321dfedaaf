// out[m, o] = sum_k x[m, k] * weight[o, k] for few rows of activations (columns) on int8 cooperative matrices. A warp multiplies
// one K split of a panel by up to 32 columns: lane r unpacks row r of the weights into shared memory that only its warp uses,
// one quant group at a time. The warps of a panel add their splits at the end, so nothing but that waits for the workgroup.
// Workgroups take items (a tile of panels, a tile of columns) in turn; the first weights of the next item are in flight while
// the results of the last one are written. Sums are made in the order of linear.comp: results are bit-identical.
// REQUIRES: a quantized format. REQUIRES: subgroups of 32; the matrix shape 16 x 16 x kDepth.
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

layout(constant_id = kSpecGemmSmallTiles) const int kTiles = 1;  // of 16 columns: 1 or 2
layout(constant_id = kSpecGemmDepth) const int kDepth = 32;  // K of one matrix instruction: 16 or 32
layout(constant_id = kSpecLinearKSplits) const int kKSplits = 8;  // Matrix::n_splits of all parts

const int kTile = 16, kMaxTiles = 2, kColumns = kTile * kTiles;
const int kPanels = kWarps / kKSplits;  // per workgroup
// Shared memory of a warp, in uvec4 (16 bytes): one quant group of x, then of the weights; at the end the results.
const int kStride = 3, kXQuads = kColumns * kStride, kWeightQuads = kPanelRows * kStride;
const int kStageQuads = kXQuads + (Q8_BLOCK == 256 ? 2 : 1) * kWeightQuads;
const int kResultStride = kPanelRows / 4 + 1, kResultQuads = kColumns * kResultStride;
const int kWarpQuads = kStageQuads > kResultQuads ? kStageQuads : kResultQuads;

#define MatA coopmat<int8_t, gl_ScopeSubgroup, kTile, kDepth, gl_MatrixUseA>
#define MatB coopmat<int8_t, gl_ScopeSubgroup, kDepth, kTile, gl_MatrixUseB>
#define AccI32 coopmat<int, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
#define AccF32 coopmat<float, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
const int kRowMajor = gl_CooperativeMatrixLayoutRowMajor, kColumnMajor = gl_CooperativeMatrixLayoutColumnMajor;

shared uvec4 stage[kWarps * kWarpQuads];
// Per warp: of the segment (d, dmin) or of the quant group.
shared float w_scales[kWarps * kPanelRows], x_scales[kWarps * kColumns];
#if HAS_MIN
shared float w_mins[kWarps * kPanelRows];
#if Q8_BLOCK == 32
shared float x_totals[kWarps * kColumns];
#endif
#endif

AccF32 totals[kMaxTiles][2];  // of the warp's K split

int stage_begin() { return warp_id() * kWarpQuads; }
int weights_begin() { return stage_begin() + kXQuads; }

// ---- work items ----

struct Work {
  int part, first_panel, expert;
  int first, n_rows;  // of x, or of the sorted pairs
};

int n_output_tiles(int part) { return (p.parts[part].n_out + kPanelRows * kPanels - 1) / (kPanelRows * kPanels); }

// Consecutive items share weights if there are several tiles of columns. False: there is no such item.
bool find_work(int item, out Work work) {
  int n_outputs = 0, output_tile;
  for (int i = 0; i < p.n_parts; ++i) n_outputs += n_output_tiles(i);
  work.expert = work.part = 0;
  if (kExpertMode == kSortedTiles) {
    int tile = item / n_outputs;
    if (tile >= CoherentInts(p.n_tiles).data[0]) return false;
    output_tile = item % n_outputs;
    work.expert = CoherentInts(p.tiles).data[3 * tile];
    work.first = CoherentInts(p.tiles).data[3 * tile + 1];
    work.n_rows = CoherentInts(p.tiles).data[3 * tile + 2];
  } else {
    int n_rows = rows_of(p.n_rows) * p.vectors_per_row, n_column_tiles = (n_rows + kColumns - 1) / kColumns;
    if (item >= n_outputs * n_column_tiles) return false;
    output_tile = item / n_column_tiles;
    work.first = item % n_column_tiles * kColumns;
    work.n_rows = min(kColumns, n_rows - work.first);
  }
  for (; work.part + 1 < p.n_parts && output_tile >= n_output_tiles(work.part); ++work.part) {
    output_tile -= n_output_tiles(work.part);
  }
  work.first_panel = output_tile * kPanels;
  return true;
}

int result_row(Work work, int column) {  // columns past the end repeat the last
  int row = work.first + min(column, work.n_rows - 1);
  return kExpertMode == kSortedTiles ? CoherentInts(p.sorted_pairs).data[row] : row;
}
int x_row(Work work, int column) {
  int row = result_row(work, column);
  return kExpertMode == kSortedTiles && p.x_per_expert == 0 ? row / p.n_experts_used : row;
}

// The segments of the warp's K split.
int split_begin() { return warp_id() % kKSplits * p.parts[0].n_segments / kKSplits; }
int split_end() { return (warp_id() % kKSplits + 1) * p.parts[0].n_segments / kKSplits; }
uint64_t weights_of(Work work, int s) {
  int panel = work.first_panel + warp_id() / kKSplits;
  if (panel * kPanelRows >= p.parts[work.part].n_out) panel = 0;  // past the end: computes panel 0, writes nothing
  return panel_at(p.parts[work.part], panel, work.expert) + uint64_t(s) * uint64_t(kSegmentBytes);
}

// ---- global memory to registers ----

Header header_prefetch;
Raw w_prefetch[kSegmentGroups];  // of a segment
const int kGroupsAhead = 4;
uvec4 x_prefetch[kGroupsAhead * kTiles];  // of the next quant groups
uint x_offsets[kTiles];
int factor_row;  // row of x whose scales and sums the lane loads

void load_weights(uint64_t segment) {
  header_prefetch = load_header(segment, lane_id());
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) w_prefetch[g] = load_group(segment, lane_id(), g);
}
void load_x(int s, int g) {
  uint64_t from = p.q8.q + uint64_t(s * kSegmentElems + g * kGroupElems);
  [[unroll]] for (int i = 0; i < kTiles; ++i) {
    x_prefetch[g % kGroupsAhead * kTiles + i] = CoherentWordQuads(from + uint64_t(x_offsets[i])).data[0];
  }
}

#if Q8_BLOCK == 256
float x_d;
ivec4 x_sums[2];
void load_factors(int s) {
  int segment = factor_row * (p.q8.stride / kSegmentElems) + s;
  x_d = CoherentFloats(p.q8.scale).data[segment];
#if HAS_MIN
  [[unroll]] for (int i = 0; i < 2; ++i) x_sums[i] = ivec4(CoherentWordQuads(p.q8.sum).data[2 * segment + i]);
#endif
}
#else
vec4 x_d[2], x_d_prefetch[2];
ivec4 x_sums[2], x_sums_prefetch[2];
void load_factors(int s) {
  int segment = factor_row * (p.q8.stride / kSegmentElems) + s;
  [[unroll]] for (int i = 0; i < 2; ++i) {
    x_d_prefetch[i] = CoherentQuads(p.q8.scale).data[2 * segment + i];
#if HAS_MIN
    x_sums_prefetch[i] = ivec4(CoherentWordQuads(p.q8.sum).data[2 * segment + i]);
#endif
  }
}
#endif

// The first loads of x for an item.
void begin_x(Work work) {
  [[unroll]] for (int i = 0; i < kTiles; ++i) {  // two lanes per column
    x_offsets[i] = uint(x_row(work, i * kTile + lane_id() / 2)) * uint(p.q8.stride) + uint(16 * (lane_id() & 1));
  }
  factor_row = x_row(work, lane_id() % kColumns);
  [[unroll]] for (int g = 0; g < kGroupsAhead; ++g) load_x(split_begin(), g);
  if (Q8_BLOCK == 32) load_factors(split_begin());
}

// ---- registers to shared memory ----

// Between stores to the warp's shared memory and loads from it. Unlike subgroupBarrier() it does not order global loads, which
// stay in flight.
void sync_warp() {
  const int kSemantics = gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible;
  controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, kSemantics);
}

void store_x(int g) {
  [[unroll]] for (int i = 0; i < kTiles; ++i) {
    int column = i * kTile + lane_id() / 2;
    stage[stage_begin() + column * kStride + (lane_id() & 1)] = x_prefetch[g % kGroupsAhead * kTiles + i];
  }
}

void store_plane(int plane, uint w[8]) {
  int to = weights_begin() + plane * kWeightQuads + lane_id() * kStride;
  stage[to] = uvec4(w[0], w[1], w[2], w[3]);
  stage[to + 1] = uvec4(w[4], w[5], w[6], w[7]);
}

MatA x_tile(int m, int k) {
  MatA x;
  coopMatLoad(x, stage, stage_begin() + m * kTile * kStride + k, kStride, kRowMajor);
  return x;
}
MatB weight_tile(int plane, int n, int k) {
  MatB w;
  coopMatLoad(w, stage, weights_begin() + plane * kWeightQuads + n * kTile * kStride + k, kStride, kColumnMajor);
  return w;
}

#if Q8_BLOCK == 256
#include "planes.glsl"

AccI32 low_sums[kMaxTiles][2], high_sums[kMaxTiles][2];  // of a segment

void begin_segment() {
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) low_sums[t / 2][t % 2] = high_sums[t / 2][t % 2] = AccI32(0);
}
void store_weights(Raw raw, Header header, int g) {
  uint low[8], high[8];
  split_group(raw, header, g, low, high);
  store_plane(0, low);
  store_plane(1, high);
}
void multiply_group() {
  [[unroll]] for (int k = 0; k < 2; k += kDepth / 16) {
    MatA x[kMaxTiles];
    [[unroll]] for (int m = 0; m < kTiles; ++m) x[m] = x_tile(m, k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      MatB low = weight_tile(0, n, k), high = weight_tile(1, n, k);
      [[unroll]] for (int m = 0; m < kTiles; ++m) {
        low_sums[m][n] = coopMatMulAdd(x[m], low, low_sums[m][n]);
        high_sums[m][n] = coopMatMulAdd(x[m], high, high_sums[m][n]);
      }
    }
  }
}

#if HAS_MIN
#define MatAF16 coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseA>
#define MatBF16 coopmat<float16_t, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseB>
// Per quant group: the minimum twice, and the sum of inputs as low + high, in the memory of x and of the weights.
void store_minima(Header header) {
  uvec4 mins;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    mins[i] = packHalf2x16(vec2(header_min(header, 2 * i), header_min(header, 2 * i + 1)));
  }
  int to = weights_begin() + lane_id() * kStride;
  stage[to] = stage[to + 1] = mins;
  if (lane_id() >= kColumns) return;
  uvec2 low[2], high[2];
  [[unroll]] for (int i = 0; i < 2; ++i) split_sums(x_sums[i], low[i], high[i]);
  to = stage_begin() + lane_id() * kStride;
  stage[to] = uvec4(low[0], low[1]);
  stage[to + 1] = uvec4(high[0], high[1]);
}
#endif

void end_segment(Header header) {
  sync_warp();
  w_scales[warp_id() * kPanelRows + lane_id()] = header_d(header);
  if (lane_id() < kColumns) x_scales[warp_id() * kColumns + lane_id()] = x_d;
#if HAS_MIN
  w_mins[warp_id() * kPanelRows + lane_id()] = header_dmin(header);
  store_minima(header);
#endif
  sync_warp();
  AccF32 x_scale[kMaxTiles];
  [[unroll]] for (int m = 0; m < kTiles; ++m) coopMatLoad(x_scale[m], x_scales, warp_id() * kColumns + m * kTile, 0, kColumnMajor);
#if HAS_MIN
  MatAF16 x_sum[kMaxTiles];
  [[unroll]] for (int m = 0; m < kTiles; ++m) {
    coopMatLoad(x_sum[m], stage, stage_begin() + m * kTile * kStride, kStride, kRowMajor);
  }
#endif
  [[unroll]] for (int n = 0; n < 2; ++n) {
    AccF32 d;
    coopMatLoad(d, w_scales, warp_id() * kPanelRows + n * kTile, 0, kRowMajor);
#if HAS_MIN
    AccF32 dmin;
    MatBF16 mins;
    coopMatLoad(dmin, w_mins, warp_id() * kPanelRows + n * kTile, 0, kRowMajor);
    coopMatLoad(mins, stage, weights_begin() + n * kTile * kStride, kStride, kColumnMajor);
#endif
    [[unroll]] for (int m = 0; m < kTiles; ++m) {
#if HAS_MIN
      AccF32 min_sums = coopMatMulAdd(x_sum[m], mins, AccF32(0));  // exact integers below 2^21
#endif
      for (int i = 0; i < d.length(); ++i) {
        precise float value = d[i] * float(low_sums[m][n][i] + kHighFactor * high_sums[m][n][i]);
#if HAS_MIN
        value = fma(-dmin[i], min_sums[i], value);
#endif
        value = value * x_scale[m][i];
        value = totals[m][n][i] + value;
        totals[m][n][i] = value;
      }
    }
  }
}
#else
AccF32 sums[kMaxTiles][2];  // of a segment

void begin_segment() {
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) sums[t / 2][t % 2] = AccF32(0);
  [[unroll]] for (int i = 0; i < 2; ++i) {
    x_d[i] = x_d_prefetch[i];
    x_sums[i] = x_sums_prefetch[i];
  }
}
void store_weights(Raw raw, Header header, int g) {
  int w[8];
  unpack(raw, w);
  store_plane(0, uint[8](w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]));
  w_scales[warp_id() * kPanelRows + lane_id()] = header_scale(header, g);
  if (lane_id() < kColumns) x_scales[warp_id() * kColumns + lane_id()] = x_d[g / 4][g % 4];
#if HAS_MIN
  w_mins[warp_id() * kPanelRows + lane_id()] = header_min(header, g);
  precise float total = x_d[g / 4][g % 4] * float(x_sums[g / 4][g % 4]);
  if (lane_id() < kColumns) x_totals[warp_id() * kColumns + lane_id()] = total;
#endif
}

void multiply_group() {
  AccI32 dots[kMaxTiles][2];
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) dots[t / 2][t % 2] = AccI32(0);
  [[unroll]] for (int k = 0; k < 2; k += kDepth / 16) {
    MatA x[kMaxTiles];
    [[unroll]] for (int m = 0; m < kTiles; ++m) x[m] = x_tile(m, k);
    [[unroll]] for (int n = 0; n < 2; ++n) {
      MatB w = weight_tile(0, n, k);
      [[unroll]] for (int m = 0; m < kTiles; ++m) dots[m][n] = coopMatMulAdd(x[m], w, dots[m][n]);
    }
  }
  [[unroll]] for (int n = 0; n < 2; ++n) {
    AccF32 w_scale;
    coopMatLoad(w_scale, w_scales, warp_id() * kPanelRows + n * kTile, 0, kRowMajor);
#if HAS_MIN
    AccF32 w_min;
    coopMatLoad(w_min, w_mins, warp_id() * kPanelRows + n * kTile, 0, kRowMajor);
#endif
    [[unroll]] for (int m = 0; m < kTiles; ++m) {
      AccF32 x_scale;
      coopMatLoad(x_scale, x_scales, warp_id() * kColumns + m * kTile, 0, kColumnMajor);
#if HAS_MIN
      AccF32 x_total;
      coopMatLoad(x_total, x_totals, warp_id() * kColumns + m * kTile, 0, kColumnMajor);
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

void end_segment(Header header) {
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) {
    for (int i = 0; i < totals[0][0].length(); ++i) {
      precise float value = totals[t / 2][t % 2][i] + sums[t / 2][t % 2][i];
      totals[t / 2][t % 2][i] = value;
    }
  }
}
#endif

// Multiplies the warp's K split; the segment at next_weights (0: none) is prefetched at the end. REQUIRES: begin_x(), and the
// first segment is prefetched.
void multiply(Work work, uint64_t next_weights) {
  int end = split_end();
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) totals[t / 2][t % 2] = AccF32(0);
  [[dont_unroll]] for (int s = split_begin(); s < end; ++s) {
    Header header = header_prefetch;
    int next_s = min(s + 1, end - 1);
    uint64_t next = s + 1 < end ? weights_of(work, s + 1) : next_weights;
    if (next != 0ul) header_prefetch = load_header(next, lane_id());
    begin_segment();
    load_factors(Q8_BLOCK == 32 ? next_s : s);
    [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) {
      sync_warp();  // the group before has been read
      store_x(g);
      store_weights(w_prefetch[g], header, g);
      if (next != 0ul) w_prefetch[g] = load_group(next, lane_id(), g);
      load_x(g + kGroupsAhead < kSegmentGroups ? s : next_s, (g + kGroupsAhead) % kSegmentGroups);
      sync_warp();
      multiply_group();
    }
    end_segment(header);
  }
}

// ---- results ----

#include "write_vec4.glsl"

void store_results() {
  sync_warp();
  [[unroll]] for (int t = 0; t < 2 * kTiles; ++t) {
    int to = stage_begin() + t / 2 * kTile * kResultStride + t % 2 * (kTile / 4);
    coopMatStore(totals[t / 2][t % 2], stage, to, kResultStride, kRowMajor);
  }
}

// Adds the K splits in order. REQUIRES: every thread of the workgroup calls.
void write_results(Work work) {
  const int kVec4s = kPanelRows / 4;
  barrier();
  for (int i = thread_id(); i < kPanels * kColumns * kVec4s; i += kThreads) {
    int vec4_idx = i % kVec4s, column = i / kVec4s % kColumns, panel = i / (kVec4s * kColumns);
    if (column >= work.n_rows) continue;
    precise vec4 sum = vec4(0);
    [[unroll]] for (int w = 0; w < kKSplits; ++w) {
      int from = (panel * kKSplits + w) * kWarpQuads + column * kResultStride + vec4_idx;
      sum = sum + uintBitsToFloat(stage[from]);
    }
    int o = (work.first_panel + panel) * kPanelRows + 4 * vec4_idx;
    write_vec4(work.part, work.expert, o, result_row(work, column), sum, vec4(0));
  }
  barrier();
}

void main() {
  int item = int(gl_WorkGroupID.x);
  Work work;
  if (kExpertMode == kSortedTiles) wait_producers(p.sync);  // they chose the experts
  bool has_work = find_work(item, work);
  if (has_work) load_weights(weights_of(work, split_begin()));
  if (kExpertMode != kSortedTiles) wait_producers(p.sync);
  if (has_work) begin_x(work);
  [[dont_unroll]] while (has_work) {
    item += int(gl_NumWorkGroups.x);
    Work next;
    has_work = find_work(item, next);
    multiply(work, has_work ? weights_of(next, split_begin()) : 0ul);
    store_results();
    if (has_work) begin_x(next);
    write_results(work);
    work = next;
  }
  signal_done(p.sync);
}
