// The known-answer test of a device: what every other kernel takes for granted. Writes one word per thread; the host
// knows each.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#extension GL_EXT_integer_dot_product : require

struct Params {
  uint64_t from, out_;  // from: [256] words
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int i = thread_id();
  uint word = Words(p.from).at[i];
  int dot = dotPacked4x8EXT(int(word), int(0x02FF7F81u));
  int sum = lanes_sum_int(int(word & 1023u), 32);
  int small = lanes_sum_int(int(word & 1023u), 8);
  float largest = lanes_max(float(word & 1023u), 32);
  bool is_in_order = int(gl_SubgroupInvocationID) == i % kSubgroup && int(gl_SubgroupSize) == kSubgroup;
  vec2 halves = unpackHalf2x16(0xC1003C00u + uint(p.out_ >> 63));  // 1 and -2.5; not a constant
  Ints(p.out_).at[4 * i] = dot;
  Ints(p.out_).at[4 * i + 1] = sum * 4096 + small;
  Ints(p.out_).at[4 * i + 2] = int(largest) + int(halves.x * 65536.0 + halves.y * 1048576.0);
  Ints(p.out_).at[4 * i + 3] = is_in_order ? 1 : 0;
}
