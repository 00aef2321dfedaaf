// Memory read bandwidth: reads and reduces zeros, so the result is never written.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/device_tests.h"

layout(set = 0, binding = 0, scalar) uniform Block { PeaksParams p; };

const int kLoadsInFlight = kPeakLoadsInFlight;

void main() {
  uint n_threads = gl_NumWorkGroups.x * uint(kThreads);
  uvec4 bits = uvec4(0);
  for (uint first = gl_GlobalInvocationID.x; first < p.n_quads; first += uint(kLoadsInFlight) * n_threads) {
    uvec4 quads[kLoadsInFlight];
    [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) quads[i] = Quads(p.from).data[first + uint(i) * n_threads];
    [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) bits |= quads[i];
  }
  if (bits != uvec4(0)) Quads(p.out_).data[0] = bits;
}
