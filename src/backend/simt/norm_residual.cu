// Post-norm and residual add, fused: norm(s) of a block's output, the addition to the residual stream, a scale, and
// optionally a second normed output (second_out) and the norm before the next matmuls, quantized. In decode, gemv.cu does the simple case itself (NormResidualPrologue). Sums
// have the order of norm_rows (row_ops.cu). A program of this file begins with kResidualSegments, the segments of a row
// per warp, which stay in registers, with two blocks per SM; and kHasNextNorm.
#include "backend/simt/quantize.h"

namespace zinc::simt {

// A row, a multiple of 8 elements, distributed over the block's warps: warp w has segments w, w + 8, ...
struct ResidualRow {
  Vec8 part[kResidualSegments];

  static ZINC_DEVICE int element(int j) { return (warp_id() + j * kWarps) * kSegmentElems + lane_id() * 8; }
  ZINC_DEVICE void load(const float* row, int width) {
#pragma unroll
    for (int j = 0; j < kResidualSegments; ++j) {
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (element(j) < width) {
        a = reinterpret_cast<const float4*>(row + element(j))[0];
        b = reinterpret_cast<const float4*>(row + element(j))[1];
      }
      part[j] = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }
  }
  ZINC_DEVICE void store(float* row, int width) const {
#pragma unroll
    for (int j = 0; j < kResidualSegments; ++j) {
      const auto& v = part[j].v;
      if (element(j) >= width) continue;
      reinterpret_cast<float4*>(row + element(j))[0] = make_float4(v[0], v[1], v[2], v[3]);
      reinterpret_cast<float4*>(row + element(j))[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
  }
  ZINC_DEVICE void store_q8(const Q8Activation& q8, int q8_block, int width) const {
#pragma unroll
    for (int j = 0; j < kResidualSegments; ++j) {
      const int segment = warp_id() + j * kWarps;
      if (segment * kSegmentElems >= width) continue;
      simt::store_q8(quantize_vec8(part[j], q8_block), q8, blockIdx.x, segment, q8_block);
    }
  }
  ZINC_DEVICE void norm(const float* weights, float eps, int width, float* sums_of_squares) {
    ResidualRow norm_weights;
    if (weights) norm_weights.load(weights, width);
#pragma unroll
    for (int j = 0; j < kResidualSegments; ++j) store_sum_squares(part[j], sums_of_squares + j * kWarps + warp_id());
    __syncthreads();
    const float factor = rms_factor(reduce_sum_squares<kResidualSegments * kWarps>(sums_of_squares), width, eps);
    __syncthreads();
    map([&](float x, int, int) { return x * factor; });
    if (weights) map([&](float x, int j, int i) { return x * norm_weights.part[j].v[i]; });
  }
  template <class F>
  ZINC_DEVICE void map(const F& f) {  // f(value, segment of the warp, element of the lane)
#pragma unroll
    for (int j = 0; j < kResidualSegments; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) part[j].v[i] = f(part[j].v[i], j, i);
    }
  }
};

// One block per row; further ones are idle.
ZINC_KERNEL_2_PER_SM norm_residual(__grid_constant__ const NormResidualParams p) {
  __shared__ __align__(16) float sums_of_squares[kResidualSegments * kWarps];
  launch_dependents();
  if (static_cast<int>(blockIdx.x) >= p.max_rows) return wait_dependency();
  prefetch_params(p);
  constexpr int kLine = 32;  // floats
  for (int offset = static_cast<int>(threadIdx.x) * kLine; offset < p.width; offset += kThreads * kLine) {
    for (const float* weights :
         {p.weights[0], p.weights[1], p.outer_weights, p.second_norm_weights, p.second_weights, p.next_weights}) {
      if (weights) prefetch_l2(weights + offset);
    }
  }
  const float scale = p.scale ? p.scale[0] : 1.0f;
  wait_dependency();
  if (p.max_rows > 1 && static_cast<int>(blockIdx.x) >= *p.n_rows) return;  // with max_rows 1 the row always exists
  const long long begin = static_cast<long long>(blockIdx.x) * p.width;
  ResidualRow row, other, residual;
  row.load(p.x[0] + begin, p.width);
  if (p.n_normed == 2) other.load(p.x[1] + begin, p.width);
  // For the residual in addition to two rows and their norm weights.
  constexpr bool kHasRegisters = kResidualSegments < (kHasNextNorm ? 3 : 4);
  if constexpr (kHasRegisters) residual.load(p.residual + begin, p.width);
  row.norm(p.weights[0], p.eps[0], p.width, sums_of_squares);
  if (p.n_normed == 2) {
    other.norm(p.weights[1], p.eps[1], p.width, sums_of_squares);
    row.map([&](float x, int j, int i) { return x + other.part[j].v[i]; });
  }
  if (p.has_outer) row.norm(p.outer_weights, p.outer_eps, p.width, sums_of_squares);
  if constexpr (!kHasRegisters) residual.load(p.residual + begin, p.width);
  row.map([&](float x, int j, int i) { return (residual.part[j].v[i] + x) * scale; });
  row.store(p.out + begin, p.width);
  if (p.second_out) {
    other.load(p.second_weights, p.width);
    row.norm(p.second_norm_weights, p.second_eps, p.width, sums_of_squares);
    row.map([&](float x, int j, int i) { return x * p.second_factor * other.part[j].v[i]; });
    row.store(p.second_out + begin, p.width);
    if constexpr (kHasNextNorm) row.load(p.out + begin, p.width);  // no registers for both
  }
  if constexpr (kHasNextNorm) {
    row.norm(p.next_weights, p.next_eps, p.width, sums_of_squares);
    if (p.normed) row.store(p.normed + begin, p.width);
    if (p.q8.q) row.store_q8(p.q8, p.q8_block, p.width);
  }
}

}  // namespace zinc::simt
