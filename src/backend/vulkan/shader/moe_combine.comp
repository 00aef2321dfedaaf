// Weighted sum of the selected experts' outputs, plus an optional residual. One thread per element.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/moe.h"

layout(set = 0, binding = 0, scalar) uniform Block { CombineParams p; };

void main() {
  int index = flat_id(), t = index / p.dim, i = index % p.dim;
  if (t >= rows_of(p.n_rows)) return;
  precise float sum = 0;
  for (int u = 0; u < p.n_experts_used; ++u) {
    sum = fma(Floats(p.x).data[(t * p.n_experts_used + u) * p.dim + i], Floats(p.weights).data[t * p.n_experts_used + u], sum);
  }
  if (p.residual != 0ul) sum = Floats(p.residual).data[index] + sum;
  Floats(p.out_).data[index] = sum;
}
