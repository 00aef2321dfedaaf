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

// Segments of splits first, first + step, ... of one panel, added in order; the first of them is `loaded`. Nothing more is
// loaded ahead: registers for a second segment cost more in workgroups at once than they win.
void multiply_panel(Matrix matrix, uint64_t weights, Loaded loaded, int first, int step, out float totals[M]) {
  int begin = first * matrix.n_segments / matrix.n_splits;
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  for (int split = first; split < matrix.n_splits; split += step) {
    float sums[M];
    [[unroll]] for (int m = 0; m < M; ++m) sums[m] = 0;
    int end = (split + 1) * matrix.n_segments / matrix.n_splits;
    for (int s = split * matrix.n_segments / matrix.n_splits; s < end; ++s) {
      if (s != begin) loaded = load_segment(weights + uint64_t(s) * uint64_t(kSegmentBytes));
      float values[M];
      multiply_segment(loaded, s, values);
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float sum = sums[m] + values[m];
        sums[m] = sum;
      }
    }
    [[unroll]] for (int m = 0; m < M; ++m) {
      precise float total = totals[m] + sums[m];
      totals[m] = total;
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
  int safe_panel = is_inside ? panel : 0;
  uint64_t begin = uint64_t(split * p.parts[0].n_segments / n_splits) * uint64_t(kSegmentBytes);
  uint64_t weights = panel_at(p.parts[part], safe_panel, expert);
  Loaded loaded = load_segment(weights + begin);
  if (kRounds != 0) make_input();
  float totals[M], ups[M];
  [[unroll]] for (int m = 0; m < M; ++m) {
    totals[m] = 0;
    ups[m] = 0;
  }
  if (is_inside || kStages) {
    multiply_panel(p.parts[part], weights, loaded, split, warps, totals);
    if (kGated != 0) {
      uint64_t up_weights = panel_at(p.parts[1], safe_panel, expert);
      multiply_panel(p.parts[1], up_weights, load_segment(up_weights + begin), split, warps, ups);
    }
  }
  if (kSplit == 0) {
    int o = panel * kPanelRows + lane_id();
    [[unroll]] for (int m = 0; m < M; ++m) {
      if (o < n_out && m < n_rows) write_out(part, expert, o, results[m], totals[m], ups[m]);
    }
    return;
  }
  [[unroll]] for (int m = 0; m < M; ++m) {
    partial[(warp_id() * M + m) * 32 + lane_id()] = totals[m];
    if (kGated != 0) partial[M * kThreads + (warp_id() * M + m) * 32 + lane_id()] = ups[m];
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
