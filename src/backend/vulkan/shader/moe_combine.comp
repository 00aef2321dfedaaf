// Weighted sum of the selected experts' outputs; then, where present, the gated shared expert, the residual, and the norm of the
// sum for the next matmuls, quantized. One workgroup per row; more if it does not fit the registers of one, without norm.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/row_ops.h"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "counter_sync.glsl"
#include "row_in_registers.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { CombineParams p; };

Vec8 weighted_sum(int t, int offset) {
  const int kUnroll = 4;  // experts in flight
  Vec8 sum = Vec8(vec4(0), vec4(0));
  for (int first = 0; first < p.n_experts_used; first += kUnroll) {
    Vec8 x[kUnroll];
    float weights[kUnroll];
    [[unroll]] for (int k = 0; k < kUnroll; ++k) {
      int pair = t * p.n_experts_used + min(first + k, p.n_experts_used - 1);
      x[k] = load_vec8_coherent(p.x + uint64_t(pair) * uint64_t(p.dim) * 4ul, offset, p.dim);
      weights[k] = CoherentFloats(p.weights).data[pair];
    }
    [[unroll]] for (int k = 0; k < kUnroll; ++k) {
      if (first + k >= p.n_experts_used) continue;
      precise vec4 a = fma(x[k].a, vec4(weights[k]), sum.a);
      precise vec4 b = fma(x[k].b, vec4(weights[k]), sum.b);
      sum = Vec8(a, b);
    }
  }
  return sum;
}

Vec8 plus(Vec8 x, Vec8 y) {
  precise vec4 a = x.a + y.a;
  precise vec4 b = x.b + y.b;
  return Vec8(a, b);
}

void combine(int t) {
  uint64_t row = uint64_t(t) * uint64_t(p.dim) * 4ul;
  [[unroll]] for (int i = 0; i < kRowVec8s; ++i) {
    int offset = row_offset(i, p.dim);
    Vec8 shared_row, residual;
    float gate = 0;
    if (p.shared_expert != 0ul) {
      shared_row = load_vec8_coherent(p.shared_expert + row, offset, p.dim);
      gate = CoherentFloats(p.shared_gate).data[t];
    }
    if (p.residual != 0ul) residual = load_vec8_coherent(p.residual + row, offset, p.dim);
    Vec8 sum = weighted_sum(t, offset);
    if (p.shared_expert != 0ul) {
      [[unroll]] for (int k = 0; k < 4; ++k) {
        shared_row.a[k] = gated(kSigmoid, gate, shared_row.a[k]);
        shared_row.b[k] = gated(kSigmoid, gate, shared_row.b[k]);
      }
      sum = plus(shared_row, sum);
    }
    if (p.residual != 0ul) sum = plus(residual, sum);
    store_vec8(p.out_ + row, offset, p.dim, sum);
    row_vec8s[i] = sum;
  }
  if (p.is_normed != 0) write_normed_row(p.normed, p.q8, t, p.dim, rms_factor(row_sum_squares(), p.dim, p.norm_eps));
}

void main() {
  row_first_segment = int(gl_WorkGroupID.y) * (kMaxRegisterRow / kSegmentElems);
  if (p.is_normed != 0) load_norm_weights(p.norm_weight, p.dim);
  wait_producers(p.sync);
  if (int(gl_WorkGroupID.x) < rows_of(p.n_rows)) combine(int(gl_WorkGroupID.x));
  signal_done(p.sync);
}
