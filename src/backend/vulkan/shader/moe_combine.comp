// Weighted sum of the selected experts' outputs, plus an optional residual. One thread per element.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/moe.h"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { CombineParams p; };

void combine() {
  int index = flat_id(), t = index / p.dim, i = index % p.dim;
  if (t >= rows_of(p.n_rows)) return;
  precise float sum = 0;
  for (int u = 0; u < p.n_experts_used; ++u) {
    int pair = t * p.n_experts_used + u;
    sum = fma(CoherentFloats(p.x).data[pair * p.dim + i], CoherentFloats(p.weights).data[pair], sum);
  }
  if (p.residual != 0ul) sum = CoherentFloats(p.residual).data[index] + sum;
  CoherentFloats(p.out_).data[index] = sum;
}

void main() {
  wait_producers(p.sync);
  combine();
  signal_done(p.sync);
}
