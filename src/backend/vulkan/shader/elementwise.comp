// Add, multiply, scale, softcap. One thread per element.
#version 460
#include "memory.glsl"
#include "activation.glsl"

const int kAdd = 0;
const int kMul = 1;
const int kScale = 2;
struct Params {
  uint64_t a, b, out_;
  int n_rows, width, b_width, op;
  float factor;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int i = flat_id();
  if (i >= rows_of(p.n_rows) * p.width) return;
  precise float x = Floats(p.a).data[i];
  if (p.op == kAdd) {
    x = x + Floats(p.b).data[i];
  } else if (p.op == kMul) {
    x = x * Floats(p.b).data[i % p.b_width];
  } else if (p.op == kScale) {
    x = x * p.factor;
  } else {
    x = p.factor * bounded_tanh(x / p.factor);
  }
  Floats(p.out_).data[i] = x;
}
