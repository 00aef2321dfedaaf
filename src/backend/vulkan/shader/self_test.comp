// Self-test of a device with known answers: everything the other kernels rely on. The host checks every word.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/device_tests.h"
#include "reduce.glsl"
#extension GL_EXT_integer_dot_product : require

layout(set = 0, binding = 0, scalar) uniform Block { SelfTestParams p; };

void main() {
  int i = thread_id();
  uint word = Words(p.from).data[i];
  int dot = dotPacked4x8EXT(int(word), int(0x02FF7F81u));
  int sum = clustered_sum_int(int(word & 1023u), 32);
  int sum8 = clustered_sum_int(int(word & 1023u), 8);
  float max_word = clustered_max(float(word & 1023u), 32);
  bool is_in_order = int(gl_SubgroupInvocationID) == i % kSubgroup && int(gl_SubgroupSize) == kSubgroup;
  vec2 halves = unpackHalf2x16(0xC1003C00u + uint(p.out_ >> 63));  // 1 and -2.5, hidden from constant folding
  Ints(p.out_).data[4 * i] = dot;
  Ints(p.out_).data[4 * i + 1] = sum * 4096 + sum8;
  Ints(p.out_).data[4 * i + 2] = int(max_word) + int(halves.x * 65536.0 + halves.y * 1048576.0);
  Ints(p.out_).data[4 * i + 3] = is_in_order ? 1 : 0;
}
