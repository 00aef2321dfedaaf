// The used experts' outputs, weighted and summed, and a residual where there is one. One thread per number.
#version 460
#include "memory.glsl"

struct Params {
  uint64_t x, weights, added, out_;
  int n_rows, n_used, dim;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int index = flat_id(), t = index / p.dim, i = index % p.dim;
  if (t >= rows_of(p.n_rows)) return;
  precise float sum = 0;
  for (int u = 0; u < p.n_used; ++u) {
    sum = fma(Floats(p.x).at[(t * p.n_used + u) * p.dim + i], Floats(p.weights).at[t * p.n_used + u], sum);
  }
  if (p.added != 0ul) sum = Floats(p.added).at[index] + sum;
  Floats(p.out_).at[index] = sum;
}
