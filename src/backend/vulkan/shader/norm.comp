// Norm of rows (or none), optionally quantized to 8 bits. One workgroup per row, which keeps it in registers if it fits (kRowVec8s);
// one warp per row of up to 256 elements (kWarpPerRow).
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "reduce.glsl"
#include "quantize.glsl"
#include "counter_sync.glsl"
#include "row_in_registers.glsl"

layout(constant_id = kSpecNormWarpPerRow) const int kWarpPerRow = 0;

layout(set = 0, binding = 0, scalar) uniform Block { NormParams p; };

float norm_factor(float sum) {
  if (p.kind != kL2) return rms_factor(sum, p.width, p.eps);
  precise float factor = 1.0 / max(sqrt(sum), p.eps);
  return factor;
}

void write_segment(int row, int segment, bool is_in_bounds, Vec8 x, float factor) {
  int offset = segment * kSegmentElems + lane_id() * 8;
  if (p.kind != kNoNorm) x = apply_norm(x, factor, p.weight, is_in_bounds ? offset : p.width + 8, p.width);
  if (is_in_bounds && p.out_ != 0ul) store_vec8(p.out_ + uint64_t(row) * uint64_t(p.width) * 4ul, offset, p.width, x);
  if (p.q8.block == 0) return;
  Q8Vec8 quantized = quantize_vec8(x, p.q8.block);
  if (is_in_bounds) store_q8(quantized, p.q8, row, segment);
}

void norm_rows() {
  int n_rows = rows_of(p.n_rows) * p.vectors_per_row;
  if (kWarpPerRow != 0) {
    int first = int(gl_WorkGroupID.x) * kWarps, row = first + warp_id();
    if (first >= n_rows) return;
    bool is_in_bounds = row < n_rows;
    Vec8 x = load_vec8_coherent(p.x + uint64_t(is_in_bounds ? row : 0) * uint64_t(p.width) * 4ul, lane_id() * 8, p.width);
    float factor = p.kind == kNoNorm ? 1.0 : norm_factor(clustered_sum(sum_squares(x, 0), 32));
    write_segment(row, 0, is_in_bounds, x, factor);
    return;
  }
  int row = int(gl_WorkGroupID.x), n_segments = (p.width + kSegmentElems - 1) / kSegmentElems;
  if (row >= n_rows) return;
  uint64_t from = p.x + uint64_t(row) * uint64_t(p.width) * 4ul;
  if (kRowVec8s > 0) {
    [[unroll]] for (int i = 0; i < kRowVec8s; ++i) row_vec8s[i] = load_vec8_coherent(from, row_offset(i, p.width), p.width);
    write_normed_row(p.out_, p.q8, row, p.width, p.kind == kNoNorm ? 1.0 : norm_factor(row_sum_squares()));
    return;
  }
  float factor = p.kind == kNoNorm ? 1.0 : norm_factor(row_sum_squares(from, p.width));
  for (int first = 0; first < n_segments; first += kWarps) {
    int s = first + warp_id();
    bool is_in_bounds = s < n_segments;
    Vec8 x = load_vec8_coherent(from, is_in_bounds ? s * kSegmentElems + lane_id() * 8 : p.width + 8, p.width);
    write_segment(row, s, is_in_bounds, x, factor);
  }
}

void main() {
  if (kRowVec8s > 0) load_norm_weights(p.kind == kNoNorm ? 0ul : p.weight, p.width);
  wait_producers(p.sync);
  norm_rows();
  signal_done(p.sync);
}
