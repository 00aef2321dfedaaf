// Row-wise ops: quantization, norms, RoPE, gated activations, elementwise, copies.
#include "backend/simt/quantize.h"

namespace zinc::simt {

// One warp per segment of a row.
ZINC_KERNEL quantize_rows(QuantizeParams p) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems;
  const int index = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  const int row = index / n_segments, segment = index % n_segments;
  if (row >= n_rows * p.vectors_per_row) return;
  const float* x = p.x + static_cast<long long>(row) * p.width;
  const Vec8 values = load_vec8(x, segment * kSegmentElems + lane_id() * 8, p.width);
  store_q8(quantize_vec8(values, p.q8_block), p.out, row, segment, p.q8_block);
}

ZINC_DEVICE float norm_factor(const NormParams& p, float sum) {
  return p.is_l2 ? 1.0f / fmaxf(sqrtf(sum), p.eps) : rms_factor(sum, p.width, p.eps);
}

ZINC_DEVICE void write_normed(const NormParams& p, long long row, int segment, const Vec8& y) {
  if (p.out) store_vec8(p.out + row * p.width, segment * kSegmentElems + lane_id() * 8, p.width, y);
  if (p.q8.q) store_q8(quantize_vec8(y, p.q8_block), p.q8, row, segment, p.q8_block);
}

// One block per row, which it keeps in registers.
ZINC_KERNEL_2_PER_SM norm_rows(NormParams p) {
  __shared__ __align__(16) float sums_of_squares[kMaxNormSegments * kWarps];
  launch_dependents();
  const auto offset = [](int j) { return (j * kWarps + warp_id()) * kSegmentElems + lane_id() * 8; };
  Vec8 x[kMaxNormSegments], weights[kMaxNormSegments];
#pragma unroll
  for (int j = 0; j < kMaxNormSegments; ++j) {
    if (p.weight) weights[j] = load_vec8(p.weight, offset(j), p.width);  // zero past the end
  }
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const long long row = blockIdx.x;
#pragma unroll
  for (int j = 0; j < kMaxNormSegments; ++j) x[j] = load_vec8(p.x + row * p.width, offset(j), p.width);
  if (row >= n_rows * p.vectors_per_row) return;
#pragma unroll
  for (int j = 0; j < kMaxNormSegments; ++j) store_sum_squares(x[j], sums_of_squares + j * kWarps + warp_id());
  __syncthreads();
  const float factor = norm_factor(p, reduce_sum_squares<kMaxNormSegments * kWarps>(sums_of_squares));
#pragma unroll
  for (int j = 0; j < kMaxNormSegments; ++j) {
    const int segment = j * kWarps + warp_id();
    if (segment * kSegmentElems >= p.width) break;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[j].v[i] *= factor;
      if (p.weight) x[j].v[i] *= weights[j].v[i];
    }
    write_normed(p, row, segment, x[j]);
  }
}

// One block per row of any length.
ZINC_KERNEL norm_long_rows(NormParams p) {
  constexpr int kInFlight = 4;
  __shared__ float sums_of_squares[kInFlight * kWarps];
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const long long row = blockIdx.x;
  if (row >= n_rows * p.vectors_per_row) return;
  const float* x = p.x + row * p.width;
  const float factor = norm_factor(p, row_sum_squares<kInFlight>(x, p.width, sums_of_squares));
  for (int s = warp_id(); s * kSegmentElems < p.width; s += kWarps) {
    const int offset = s * kSegmentElems + lane_id() * 8;
    write_normed(p, row, s, normed(load_vec8(x, offset, p.width), factor, p.weight, offset, p.width));
  }
}

// One warp per row of at most one segment: per-head norms.
ZINC_KERNEL norm_heads(NormParams p) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const long long row = static_cast<long long>(blockIdx.x) * kWarps + warp_id();
  if (row >= n_rows * p.vectors_per_row) return;
  const int offset = lane_id() * 8;
  const Vec8 x = load_vec8(p.x + row * p.width, offset, p.width);
  const float factor = norm_factor(p, warp_sum(sum_squares(x, 0), 32));
  write_normed(p, row, 0, normed(x, factor, p.weight, offset, p.width));
}

// cos and sin of each token's position; once per step for each RoPE configuration.
ZINC_KERNEL rope_table(RopeTableParams p) {
  launch_dependents();
  wait_dependency();
  const int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int t = index / p.n_pairs, pair = index % p.n_pairs;
  if (t >= p.step.counts[kTokens]) return;
  const int scaling = p.scalings ? p.scalings[t] : 0;
  const double angle = p.step.positions[t] * p.frequencies[scaling * p.n_pairs + pair];
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  p.table[2 * index] = static_cast<float>(cosine * p.amplitudes[scaling]);
  p.table[2 * index + 1] = static_cast<float>(sine * p.amplitudes[scaling]);
}

// One thread per pair, or per element that is not rotated.
ZINC_KERNEL rope(RopeParams p) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const int per_head = p.head_dim - p.n_pairs;  // pairs, then the elements without rotation
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const int i = static_cast<int>(index % per_head);
  const long long head = index / per_head;
  const long long t = head / p.n_heads;
  if (t >= n_rows) return;
  const float* x = p.x + head * p.head_dim;
  float* out = p.out + head * p.head_dim;
  if (i >= p.n_pairs) {
    out[i + p.n_pairs] = x[i + p.n_pairs];
    return;
  }
  const float cosine = p.table[2 * (t * p.n_pairs + i)], sine = p.table[2 * (t * p.n_pairs + i) + 1];
  const int first = p.adjacent ? 2 * i : i, second = p.adjacent ? 2 * i + 1 : i + p.n_pairs;
  const float a = x[first], b = x[second];
  out[first] = a * cosine - b * sine;
  out[second] = a * sine + b * cosine;
}

// One warp per segment of a row.
ZINC_DEVICE void run_gated_act(const GatedActParams& p, int block) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems;
  const int index = block * kWarps + warp_id();
  const int segment = index % n_segments;
  const long long row = index / n_segments;
  if (row >= n_rows * p.vectors_per_row) return;
  const int offset = segment * kSegmentElems + lane_id() * 8;
  Vec8 y = load_vec8(p.up + row * p.width, offset, p.width);
  if (p.scalar_gate) {
    const float gate = p.gate[row / p.vectors_per_row];
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(p.act, gate, y.v[i]);
  } else {
    const Vec8 gate = load_vec8(p.gate + row * p.width, offset, p.width);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = gated(p.act, gate.v[i], y.v[i]);
  }
  if (p.out) store_vec8(p.out + row * p.width, offset, p.width, y);
  if (p.q8.q) store_q8(quantize_vec8(y, p.q8_block), p.q8, row, segment, p.q8_block);
}

ZINC_KERNEL gated_act(__grid_constant__ const GatedActParams p) { run_gated_act(p, static_cast<int>(blockIdx.x)); }

ZINC_KERNEL gated_act_pair(__grid_constant__ const GatedActPairParams p) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < p.n_first_blocks) {
    run_gated_act(p.acts[0], block);
  } else {
    run_gated_act(p.acts[1], block - p.n_first_blocks);
  }
}

ZINC_KERNEL elementwise(ElementwiseParams p) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= static_cast<long long>(n_rows) * p.width) return;
  const float a = p.a[i];
  if (p.op == kAdd) p.out[i] = a + p.b[i];
  if (p.op == kMul) p.out[i] = a * p.b[i % p.b_width];
  if (p.op == kScale) p.out[i] = a * p.factor;
  if (p.op == kSoftcap) p.out[i] = p.factor * tanhf(a / p.factor);
  if (p.op == kRelu2) p.out[i] = fmaxf(a, 0.0f) * fmaxf(a, 0.0f);
}

ZINC_KERNEL copy_parts(CopyParams p) {
  launch_dependents();
  const int n_rows = step_count(p.n_rows);
  wait_dependency();
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const long long row = index / p.length;
  const int i = static_cast<int>(index % p.length);
  if (row >= static_cast<long long>(n_rows) * p.vectors_per_row) return;
  const long long from = p.row_ids ? p.row_ids[row] : row;
  p.to[row * p.to_width + p.to_begin + i] = p.from[from * p.from_width + p.from_begin + i];
}

}  // namespace zinc::simt
