// RoPE factors of a position: (cos, sin) of its multiple of 512 composed with (cos, sin) of the remainder. The host computes both
// tables in double precision.
#include "backend/vulkan/params/row_ops.h"

int rope_scaling(RopeTable rope, int token) {
  return rope.scalings != 0 ? Ints(step.counts).data[rope.scalings + token] : 0;
}
vec2 rope_cos_sin(RopeTable rope, int scaling, int position, int pair) {
  int coarse = scaling * rope.n_coarse + position / kFinePositions;
  int fine = scaling * kFinePositions + position % kFinePositions;
  vec2 a = FloatPairs(rope.coarse).data[coarse * rope.n_pairs + pair];
  vec2 b = FloatPairs(rope.fine).data[fine * rope.n_pairs + pair];
  precise vec2 sum = vec2(fma(a.x, b.x, -(a.y * b.y)), fma(a.y, b.x, a.x * b.y));
  return sum;
}
vec2 rotate_pair(vec2 x, vec2 cos_sin) {
  precise vec2 y = vec2(fma(x.x, cos_sin.x, -(x.y * cos_sin.y)), fma(x.x, cos_sin.y, x.y * cos_sin.x));
  return y;
}
