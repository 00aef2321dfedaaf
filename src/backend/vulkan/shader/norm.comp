// Rows normed (or left as they are) and, where wanted, rounded to 8 bits. One workgroup per row; or, for rows of up to
// 256 numbers (kHeads), one warp.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "rounding.glsl"

layout(constant_id = 1) const int kHeads = 0;

const int kPlain = 0;
const int kRms = 1;
const int kL2 = 2;
struct Params {
  uint64_t x, weight, out_;  // out 0: only rounded
  Rounded rounded;
  int n_rows, per_row, width, kind;
  float eps;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

float factor_of(float sum) {
  if (p.kind != kL2) return rms_factor(sum, p.width, p.eps);
  precise float factor = 1.0 / max(sqrt(sum), p.eps);
  return factor;
}

void write(int row, int segment, bool is_inside, Eight x, float factor) {
  int at = segment * kSegmentElems + lane_id() * 8;
  if (p.kind != kPlain) x = normed(x, factor, p.weight, is_inside ? at : p.width + 8, p.width);
  if (is_inside && p.out_ != 0ul) store_eight(p.out_ + uint64_t(row) * uint64_t(p.width) * 4ul, at, p.width, x);
  if (p.rounded.block == 0) return;
  RoundedEight r = round_eight(x, p.rounded.block);
  if (is_inside) store_rounded(r, p.rounded, row, segment);
}

void main() {
  int n_rows = rows_of(p.n_rows) * p.per_row;
  if (kHeads != 0) {
    int first = int(gl_WorkGroupID.x) * kWarps, row = first + warp_id();
    if (first >= n_rows) return;
    bool is_inside = row < n_rows;
    Eight x = load_eight(p.x + uint64_t(is_inside ? row : 0) * uint64_t(p.width) * 4ul, lane_id() * 8, p.width);
    float factor = p.kind == kPlain ? 1.0 : factor_of(lanes_sum(squares(x, 0), 32));
    write(row, 0, is_inside, x, factor);
    return;
  }
  int row = int(gl_WorkGroupID.x), n_segments = (p.width + kSegmentElems - 1) / kSegmentElems;
  if (row >= n_rows) return;
  uint64_t from = p.x + uint64_t(row) * uint64_t(p.width) * 4ul;
  float factor = p.kind == kPlain ? 1.0 : factor_of(row_squares(from, p.width));
  for (int first = 0; first < n_segments; first += kWarps) {
    int s = first + warp_id();
    bool is_inside = s < n_segments;
    write(row, s, is_inside, load_eight(from, is_inside ? s * kSegmentElems + lane_id() * 8 : p.width + 8, p.width),
          factor);
  }
}
