// out = act(gate) * up, and rounded to 8 bits where wanted. One warp per segment of a row of `width`.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"

struct Params {
  uint64_t gate, up, out_;  // out 0: only rounded
  Rounded rounded;
  int n_rows, per_row, width;  // rows of `width` within one of the n_rows
  int one_gate, act;   // one_gate: each of the n_rows has one gate
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems, n_rows = rows_of(p.n_rows) * p.per_row;
  int first = int(gl_WorkGroupID.x) * kWarps, index = first + warp_id();
  if (first >= n_rows * n_segments) return;
  bool is_inside = index < n_rows * n_segments;
  int row = is_inside ? index / n_segments : 0, segment = index % n_segments;
  int at = is_inside ? segment * kSegmentElems + lane_id() * 8 : p.width + 8;
  uint64_t begin = uint64_t(row) * uint64_t(p.width) * 4ul;
  Eight y = load_eight(p.up + begin, at, p.width), gate;
  if (p.one_gate != 0) {
    float g = Floats(p.gate).at[row / p.per_row];
    gate = Eight(vec4(g), vec4(g));
  } else {
    gate = load_eight(p.gate + begin, at, p.width);
  }
  for (int i = 0; i < 4; ++i) {
    y.a[i] = gated(p.act, gate.a[i], y.a[i]);
    y.b[i] = gated(p.act, gate.b[i], y.b[i]);
  }
  // Numbers past the row's end stay zero, whatever the gate makes of zeros.
  if (at + 4 > p.width || at + 8 > p.width) {
    for (int i = 0; i < 4; ++i) {
      if (at + i >= p.width) y.a[i] = 0;
      if (at + 4 + i >= p.width) y.b[i] = 0;
    }
  }
  if (is_inside && p.out_ != 0ul) store_eight(p.out_ + begin, at, p.width, y);
  if (p.rounded.block == 0) return;
  RoundedEight r = round_eight(y, p.rounded.block);
  if (is_inside) store_rounded(r, p.rounded, row, segment);
}
