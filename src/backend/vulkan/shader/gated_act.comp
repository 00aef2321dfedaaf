// out = act(gate) * up, optionally quantized to 8 bits. One warp per segment of a row of `width`.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { GatedActParams p; };

void activate() {
  int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems, n_rows = rows_of(p.n_rows) * p.vectors_per_row;
  int first = int(gl_WorkGroupID.x) * kWarps, index = first + warp_id();
  if (first >= n_rows * n_segments) return;
  bool is_in_bounds = index < n_rows * n_segments;
  int row = is_in_bounds ? index / n_segments : 0, segment = index % n_segments;
  int offset = is_in_bounds ? segment * kSegmentElems + lane_id() * 8 : p.width + 8;
  uint64_t begin = uint64_t(row) * uint64_t(p.width) * 4ul;
  Vec8 y = load_vec8_coherent(p.up + begin, offset, p.width), gate;
  if (p.scalar_gate != 0) {
    float g = CoherentFloats(p.gate).data[row / p.vectors_per_row];
    gate = Vec8(vec4(g), vec4(g));
  } else {
    gate = load_vec8_coherent(p.gate + begin, offset, p.width);
  }
  for (int i = 0; i < 4; ++i) {
    y.a[i] = gated(p.act, gate.a[i], y.a[i]);
    y.b[i] = gated(p.act, gate.b[i], y.b[i]);
  }
  // Zero past the row's end: act(0) * 0 need not be zero.
  if (offset + 4 > p.width || offset + 8 > p.width) {
    for (int i = 0; i < 4; ++i) {
      if (offset + i >= p.width) y.a[i] = 0;
      if (offset + 4 + i >= p.width) y.b[i] = 0;
    }
  }
  if (is_in_bounds && p.out_ != 0ul) store_vec8(p.out_ + begin, offset, p.width, y);
  if (p.q8.block == 0) return;
  Q8Vec8 quantized = quantize_vec8(y, p.q8.block);
  if (is_in_bounds) store_q8(quantized, p.q8, row, segment);
}

void main() {
  wait_producers(p.sync);
  activate();
  signal_done(p.sync);
}
