// The residual stream of models that norm what a block gives before they add it: all up to the next norm, or to a
// branch that the sum's first reader wants. In a step of one row the next products do what is simple (kSummedRow). Sums
// have the order of norm_rows (rows.cu). A program of this file begins with kStreamSegments, a warp's of a row: in
// registers, of which half a multiprocessor's must do.
#include "backend/simt/rounding.h"

namespace zinc::simt {

// A row of a multiple of 8 numbers, shared out among the block's warps: warp w has segments w, w + 8, ...
struct Stream {
  Eight part[kStreamSegments];

  static ZINC_DEVICE int place(int j) { return (warp_id() + j * kWarps) * kSegmentElems + lane_id() * 8; }
  ZINC_DEVICE void load(const float* row, int width) {
#pragma unroll
    for (int j = 0; j < kStreamSegments; ++j) {
      float4 a = make_float4(0, 0, 0, 0), b = a;
      if (place(j) < width) {
        a = reinterpret_cast<const float4*>(row + place(j))[0];
        b = reinterpret_cast<const float4*>(row + place(j))[1];
      }
      part[j] = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }
  }
  ZINC_DEVICE void store(float* row, int width) const {
#pragma unroll
    for (int j = 0; j < kStreamSegments; ++j) {
      const auto& v = part[j].v;
      if (place(j) >= width) continue;
      reinterpret_cast<float4*>(row + place(j))[0] = make_float4(v[0], v[1], v[2], v[3]);
      reinterpret_cast<float4*>(row + place(j))[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
  }
  ZINC_DEVICE void norm(const float* weights, float eps, int width, float* room) {
    Stream its;
    if (weights) its.load(weights, width);
#pragma unroll
    for (int j = 0; j < kStreamSegments; ++j) put_squares(part[j], room + j * kWarps + warp_id());
    __syncthreads();
    const float factor = rms_factor(sum_squares<kStreamSegments * kWarps>(room), width, eps);
    __syncthreads();
    change([&](float x, int, int) { return x * factor; });
    if (weights) change([&](float x, int j, int i) { return x * its.part[j].v[i]; });
  }
  template <class F>
  ZINC_DEVICE void change(const F& f) {  // f(number, segment of the warp, number of the lane)
#pragma unroll
    for (int j = 0; j < kStreamSegments; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) part[j].v[i] = f(part[j].v[i], j, i);
    }
  }
};

// A block for each row; further ones are idle.
ZINC_KERNEL_2 add_normed(__grid_constant__ const AddNormedParams p) {
  __shared__ __align__(16) float room[kStreamSegments * kWarps];
  let_next_start();
  if (static_cast<int>(blockIdx.x) >= p.most_rows) return wait_for_previous();
  touch_params(p);
  constexpr int kLine = 32;  // floats
  for (int at = static_cast<int>(threadIdx.x) * kLine; at < p.width; at += kThreads * kLine) {
    for (const float* weights :
         {p.weights[0], p.weights[1], p.outer_weights, p.branch_norm_weights, p.branch_weights}) {
      if (weights) fetch_ahead(weights + at);
    }
  }
  const float scale = p.scale ? p.scale[0] : 1.0f;
  wait_for_previous();
  if (p.most_rows > 1 && static_cast<int>(blockIdx.x) >= *p.n_rows) return;  // one row is always there
  const long long begin = static_cast<long long>(blockIdx.x) * p.width;
  Stream row, other, residual;
  row.load(p.x[0] + begin, p.width);
  if (p.n_normed == 2) other.load(p.x[1] + begin, p.width);
  constexpr bool kHasRoom = kStreamSegments < 4;  // for the residual beside two rows and their norms' weights
  if constexpr (kHasRoom) residual.load(p.residual + begin, p.width);
  row.norm(p.weights[0], p.eps[0], p.width, room);
  if (p.n_normed == 2) {
    other.norm(p.weights[1], p.eps[1], p.width, room);
    row.change([&](float x, int j, int i) { return x + other.part[j].v[i]; });
  }
  if (p.has_outer) row.norm(p.outer_weights, p.outer_eps, p.width, room);
  if constexpr (!kHasRoom) residual.load(p.residual + begin, p.width);
  row.change([&](float x, int j, int i) { return (residual.part[j].v[i] + x) * scale; });
  row.store(p.out + begin, p.width);
  if (!p.branch) return;
  other.load(p.branch_weights, p.width);
  row.norm(p.branch_norm_weights, p.branch_eps, p.width, room);
  row.change([&](float x, int j, int i) { return x * p.branch_factor * other.part[j].v[i]; });
  row.store(p.branch + begin, p.width);
}

}  // namespace zinc::simt
