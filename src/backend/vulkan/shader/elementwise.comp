// Add, multiply, scale, softcap, squared ReLU. One thread per element.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "activation.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { ElementwiseParams p; };

void compute() {
  int i = flat_id();
  if (i >= rows_of(p.n_rows) * p.width) return;
  precise float x = CoherentFloats(p.a).data[i];
  if (p.op == kAdd) {
    x = x + CoherentFloats(p.b).data[i];
  } else if (p.op == kMul) {
    x = x * Floats(p.b).data[i % p.b_width];
  } else if (p.op == kScale) {
    x = x * p.factor;
  } else if (p.op == kRelu2) {
    x = max(x, 0.0) * max(x, 0.0);
  } else {
    x = p.factor * bounded_tanh(x / p.factor);
  }
  CoherentFloats(p.out_).data[i] = x;
}

void main() {
  wait_producers(p.sync);
  compute();
  signal_done(p.sync);
}
