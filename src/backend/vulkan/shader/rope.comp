// RoPE of heads. One thread per pair, or per element that is not rotated.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "rope.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { RopeParams p; };

void main() {
  int per_head = p.head_dim - p.rope.n_pairs, index = flat_id();
  int i = index % per_head, head = index / per_head, t = head / p.n_heads;
  if (t >= rows_of(p.n_rows)) return;
  uint64_t offset = uint64_t(head) * uint64_t(p.head_dim) * 4ul;
  if (i >= p.rope.n_pairs) {
    Floats(p.out_ + offset).data[i + p.rope.n_pairs] = Floats(p.x + offset).data[i + p.rope.n_pairs];
    return;
  }
  int first = p.rope.adjacent != 0 ? 2 * i : i, second = p.rope.adjacent != 0 ? 2 * i + 1 : i + p.rope.n_pairs;
  vec2 y = rotate_pair(vec2(Floats(p.x + offset).data[first], Floats(p.x + offset).data[second]),
                       rope_cos_sin(p.rope, Ints(step.positions).data[t], i));
  Floats(p.out_ + offset).data[first] = y.x;
  Floats(p.out_ + offset).data[second] = y.y;
}
