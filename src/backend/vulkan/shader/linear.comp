// out[m, o] = sum_k x[m, k] * weight[o, k]: matrices times few or many rows of activations, one module per format.
// One thread per output row, 32 of them a panel; M rows of activations at once. Either the warps of a workgroup share a
// panel's segments (kSplit, decode) or each has a panel of its own (prompts). Sums: a segment's value is exact integers
// and then the fewest float operations; segments are added in order within a split, splits in order. So the result does
// not depend on M, kSplit or where x was rounded. Moves each weight once per M rows.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"

layout(constant_id = 1) const int M = 1;        // rows of activations at once
layout(constant_id = 2) const int kSplit = 1;   // the warps of a panel share its segments
#include "segments.glsl"
#include "input.glsl"

shared float partial[kSplit * (1 + kGated) * M * kThreads + 1];

int results[M];

// A warp's segments: those of `split` (kSplit) or of all, of one matrix or of gate and up, in order. kAhead of them are on
// their way from the beginning on.
layout(constant_id = 8) const int kAhead = 1;
const int kMatrices = 1 + kGated;

int first_segment, n_own;
uint64_t weights_of[2];

Loaded load_own(int i) {
  int which = kGated != 0 && i >= n_own ? 1 : 0, s = first_segment + i - which * n_own;
  return load_segment(weights_of[which] + uint64_t(s) * uint64_t(kSegmentBytes));
}

// Segments are added in order within a split, splits in order.
void multiply_own(Loaded loaded[kAhead], inout float totals[kMatrices][M]) {
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits;
  [[unroll]] for (int which = 0; which < kMatrices; ++which) {
    float sums[M];
    [[unroll]] for (int m = 0; m < M; ++m) sums[m] = 0;
    int split = kSplit != 0 ? 0 : 1;
    for (int i = 0; i < n_own; ++i) {
      int next = which * n_own + i + kAhead;
      float values[M];
      multiply_segment(loaded[0], first_segment + i, values);
      [[unroll]] for (int k = 0; k + 1 < kAhead; ++k) loaded[k] = loaded[k + 1];
      if (next < kMatrices * n_own) loaded[kAhead - 1] = load_own(next);
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float sum = sums[m] + values[m];
        sums[m] = sum;
      }
      bool ends = kSplit != 0 ? i + 1 == n_own : i + 1 == split * n_segments / n_splits;
      if (!ends) continue;
      ++split;
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float total = totals[which][m] + sums[m];
        totals[which][m] = total;
        sums[m] = 0;
      }
    }
  }
}

// Which rows, and of which expert. The number of rows there are; none: nothing to do.
int find_rows(out int expert) {
  int first, n = find_tile(M, expert, first);
  [[unroll]] for (int m = 0; m < M && n > 0; ++m) {  // rows past the last repeat it
    int at = first + min(m, n - 1);
    results[m] = kExperts == 2 ? Ints(p.order).at[at] : at;
    x_rows[m] = kExperts != 0 && p.x_per_used == 0 ? results[m] / p.n_used : results[m];
  }
  return n;
}

void main() {
  touch_params();
  if (kRouteRoom > 1) {  // one row; whose experts nobody has looked for yet
    choose_experts(p.route, 0);
    if (gl_WorkGroupID.x == 0 && gl_WorkGroupID.y == 0) write_route(p.route, 0);
  }
  int n_splits = p.parts[0].n_splits, warps = kSplit != 0 ? n_splits : 1;
  int per_block = kWarps / warps, local = warp_id() / warps, split = kSplit != 0 ? warp_id() % warps : 0;
  int part, block = find_part(kPanelRows * per_block, part);
  int panel = block * per_block + local, n_out = p.parts[part].n_out, expert;
  int n_rows = find_rows(expert);
  if (n_rows == 0) return;
  // The first weights are on their way before the activations are looked at.
  bool is_inside = panel * kPanelRows < n_out;
  int n_segments = p.parts[0].n_segments, safe_panel = is_inside ? panel : 0;
  first_segment = kSplit != 0 ? split * n_segments / n_splits : 0;
  n_own = kSplit != 0 ? (split + 1) * n_segments / n_splits - first_segment : n_segments;
  weights_of[0] = panel_at(p.parts[part], safe_panel, expert);
  if (kGated != 0) weights_of[1] = panel_at(p.parts[1], safe_panel, expert);
  Loaded loaded[kAhead];
  [[unroll]] for (int i = 0; i < kAhead; ++i) loaded[i] = load_own(min(i, kMatrices * n_own - 1));
  if (kRounds != 0) make_input();
  float totals[kMatrices][M];
  [[unroll]] for (int i = 0; i < kMatrices; ++i) {
    [[unroll]] for (int m = 0; m < M; ++m) totals[i][m] = 0;
  }
  if (is_inside) multiply_own(loaded, totals);
  if (kSplit == 0) {
    int o = panel * kPanelRows + lane_id();
    [[unroll]] for (int m = 0; m < M; ++m) {
      if (o < n_out && m < n_rows) write_out(part, expert, o, results[m], totals[0][m], totals[kGated][m]);
    }
    return;
  }
  [[unroll]] for (int m = 0; m < M; ++m) {
    partial[(warp_id() * M + m) * 32 + lane_id()] = totals[0][m];
    if (kGated != 0) partial[M * kThreads + (warp_id() * M + m) * 32 + lane_id()] = totals[kGated][m];
  }
  barrier();
  for (int i = thread_id(); i < per_block * M * kPanelRows; i += kThreads) {
    int row = i % kPanelRows, m = i / kPanelRows % M, which = i / (kPanelRows * M);
    int o = (block * per_block + which) * kPanelRows + row;
    if (o >= n_out || m >= n_rows) continue;
    float sum = 0, up_sum = 0;
    for (int w = 0; w < warps; ++w) {
      int at = ((which * warps + w) * M + m) * 32 + row;
      precise float next = sum + partial[at];
      sum = next;
      if (kGated != 0) {
        precise float next_up = up_sum + partial[M * kThreads + at];
        up_sum = next_up;
      }
    }
    write_out(part, expert, o, results[m], sum, up_sum);
  }
}
