// RoPE of heads. One thread per pair, or per element that is not rotated.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "rope.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { RopeParams p; };

void rotate() {
  int per_head = p.head_dim - p.rope.n_pairs, index = flat_id();
  int i = index % per_head, head = index / per_head, t = head / p.n_heads;
  if (t >= rows_of(p.n_rows)) return;
  uint64_t offset = uint64_t(head) * uint64_t(p.head_dim) * 4ul;
  if (i >= p.rope.n_pairs) {
    CoherentFloats(p.out_ + offset).data[i + p.rope.n_pairs] = CoherentFloats(p.x + offset).data[i + p.rope.n_pairs];
    return;
  }
  int first = p.rope.adjacent != 0 ? 2 * i : i, second = p.rope.adjacent != 0 ? 2 * i + 1 : i + p.rope.n_pairs;
  vec2 y = rotate_pair(vec2(CoherentFloats(p.x + offset).data[first], CoherentFloats(p.x + offset).data[second]),
                       rope_cos_sin(p.rope, rope_scaling(p.rope, t), Ints(step.positions).data[t], i));
  CoherentFloats(p.out_ + offset).data[first] = y.x;
  CoherentFloats(p.out_ + offset).data[second] = y.y;
}

void main() {
  wait_producers(p.sync);
  rotate();
  signal_done(p.sync);
}
