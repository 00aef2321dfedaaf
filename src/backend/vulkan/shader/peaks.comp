// Reads memory and does nothing else: what a device's memory gives at most. The memory is zeros, so nothing is ever written.
#version 460
#include "memory.glsl"

struct Params {
  uint64_t from, out_;
  uint n_quads, unused;  // a multiple of kAtOnce times the grid's threads
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

const int kAtOnce = 8;

void main() {
  uint n_threads = gl_NumWorkGroups.x * uint(kThreads);
  uvec4 all = uvec4(0);
  for (uint first = gl_GlobalInvocationID.x; first < p.n_quads; first += uint(kAtOnce) * n_threads) {
    uvec4 quads[kAtOnce];
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) quads[i] = Quads(p.from).at[first + uint(i) * n_threads];
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) all |= quads[i];
  }
  if (all != uvec4(0)) Quads(p.out_).at[0] = all;
}
