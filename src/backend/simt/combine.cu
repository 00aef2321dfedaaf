// The weighted sum of experts, the gated shared expert, the residual add and the norm of the result: one block per row, or
// several without a norm. In decode, gemv_moe_down.cu does it, in the same order, and the next gemv norms. A program of
// this file begins with kCombineSegments, the segments of a row per warp: they stay in registers, with two blocks per SM.
#include "backend/simt/quantize.h"

namespace zinc::simt {

// The warp's segments of the block's part of a row; segments past the end are zero.
struct RowPart {
  Vec8 part[kCombineSegments];

  static ZINC_DEVICE int first() { return static_cast<int>(blockIdx.y) * kCombineSegments * kWarps; }
  static ZINC_DEVICE int segment(int j) { return first() + j * kWarps + warp_id(); }
  static ZINC_DEVICE int offset(int j) { return segment(j) * kSegmentElems + lane_id() * 8; }
  ZINC_DEVICE void load(const float* row, int width) {
#pragma unroll
    for (int j = 0; j < kCombineSegments; ++j) part[j] = load_vec8(row, offset(j), width);
  }
  ZINC_DEVICE void store(float* row, int width) const {
#pragma unroll
    for (int j = 0; j < kCombineSegments; ++j) store_vec8(row, offset(j), width, part[j]);
  }
  // f(value, value of `other`)
  template <class F>
  ZINC_DEVICE void combine(const RowPart& other, const F& f) {
#pragma unroll
    for (int j = 0; j < kCombineSegments; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) part[j].v[i] = f(part[j].v[i], other.part[j].v[i]);
    }
  }
};

// Norms the row, with its own part in registers.
ZINC_DEVICE void write_normed(const CombineParams& p, long long row, RowPart& sums, const RowPart& norm_weights) {
  __shared__ __align__(16) float sums_of_squares[kCombineSegments * kWarps];
#pragma unroll
  for (int j = 0; j < kCombineSegments; ++j) store_sum_squares(sums.part[j], sums_of_squares + j * kWarps + warp_id());
  __syncthreads();
  const float factor = rms_factor(reduce_sum_squares<kCombineSegments * kWarps>(sums_of_squares), p.dim, p.norm_eps);
  sums.combine(sums, [&](float x, float) { return x * factor; });
  if (p.norm_weight) sums.combine(norm_weights, [](float x, float weight) { return x * weight; });
  if (p.normed) sums.store(p.normed + row * p.dim, p.dim);
  if (!p.q8.q) return;
#pragma unroll
  for (int j = 0; j < kCombineSegments; ++j) {
    const int s = RowPart::segment(j);
    if (s * kSegmentElems < p.dim) store_q8(quantize_vec8(sums.part[j], p.q8_block), p.q8, row, s, p.q8_block);
  }
}

// Grid: rows, parts of a row.
ZINC_KERNEL_2_PER_SM moe_combine(__grid_constant__ const CombineParams p) {
  constexpr bool kHasRegisters = kCombineSegments <= 2;  // for the shared expert and the residual beside the sums
  launch_dependents();
  prefetch_params(p);
  const long long row = blockIdx.x;
  RowPart sums = {}, norm_weights, shared, residual;
  if (p.norm_weight) norm_weights.load(p.norm_weight, p.dim);
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  if (row >= n_rows) return;
  const float* weights = p.weights + row * p.n_experts_used;
  const float* experts = p.x + row * p.n_experts_used * p.dim;
  const float gate = p.shared ? p.shared_gate[row] : 0.0f;
  if (kHasRegisters && p.shared) shared.load(p.shared + row * p.dim, p.dim);
  if (kHasRegisters && p.residual) residual.load(p.residual + row * p.dim, p.dim);
#pragma unroll(kCombineSegments == 1 ? 8 : kHasRegisters ? 4 : 1)
  for (int u = 0; u < p.n_experts_used; ++u) {
    const float weight = weights[u];
    RowPart x;
    x.load(experts + static_cast<long long>(u) * p.dim, p.dim);
    sums.combine(x, [&](float sum, float value) { return fmaf(value, weight, sum); });
  }
  if (!kHasRegisters && p.shared) shared.load(p.shared + row * p.dim, p.dim);
  if (p.shared) sums.combine(shared, [&](float sum, float value) { return sum + gated(kSigmoid, gate, value); });
  if (!kHasRegisters && p.residual) residual.load(p.residual + row * p.dim, p.dim);
  if (p.residual) sums.combine(residual, [](float sum, float value) { return value + sum; });
  sums.store(p.out + row * p.dim, p.dim);
  if (p.is_normed) write_normed(p, row, sums, norm_weights);
}

}  // namespace zinc::simt
