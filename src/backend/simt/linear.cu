// out[m, o] = sum_k x[m, k] * weight[o, k]: matrices times few rows of activations. A program of this file begins with
// one format/<f>.h.
// One lane per output row, one warp per segment of 256 inputs; the segments' values are added in order by one thread per
// output. A block's first weights are on their way before it waits for its activations.
// Moves each weight once per M rows of activations.
#include "backend/simt/dialect.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);

// Which rows a block works on: M rows of activations, times one matrix of the stack.
template <int M>
struct Work {
  int first, n_total, expert;
  int x_rows[M];
};

template <int M>
ZINC_DEVICE Work<M> find_work(const LinearParams& p) {
  Work<M> work;
  const int n_rows = *p.n_rows;
  work.first = static_cast<int>(blockIdx.y) * M;
  work.expert = 0;
  if (p.expert_ids) {  // M is 1
    work.n_total = n_rows * p.n_used;
    if (work.first >= work.n_total) return work;
    work.expert = p.expert_ids[work.first];
    work.x_rows[0] = p.x_per_used ? work.first : work.first / p.n_used;
    return work;
  }
  work.n_total = n_rows * p.per_row;
#pragma unroll
  for (int m = 0; m < M; ++m) work.x_rows[m] = max(0, min(work.first + m, work.n_total - 1));
  return work;
}

template <int M>
ZINC_DEVICE void write_out(const LinearParams& p, const Work<M>& work, const float* partial) {
  const int panels = kWarps / p.warps_per_panel, n_segments = p.matrix.n_segments, n_out = p.matrix.n_out;
  for (int i = static_cast<int>(threadIdx.x); i < panels * M * kPanelRows; i += kThreads) {
    const int row = i % kPanelRows, m = i / kPanelRows % M, panel = i / (kPanelRows * M);
    const int o = (static_cast<int>(blockIdx.x) * panels + panel) * kPanelRows + row;
    if (o >= n_out || work.first + m >= work.n_total) continue;
    float sum = 0;
    for (int s = 0; s < n_segments; ++s) sum += partial[((panel * n_segments + s) * M + m) * kPanelRows + row];
    if (p.expert_scale) sum *= p.expert_scale[work.expert];
    if (p.bias) sum += p.bias[static_cast<long long>(work.expert) * n_out + o];
    const long long at = static_cast<long long>(work.first + m) * n_out + o;
    p.out[at] = p.added ? p.added[at] + sum : sum;
  }
}

template <int M>
ZINC_DEVICE void linear(const LinearParams& p) {
  extern __shared__ float partial[];  // [panel][segment][M][row]
  let_next_start();
  const int panels = kWarps / p.warps_per_panel;
  const int panel_in_block = warp_id() / p.warps_per_panel, first = warp_id() % p.warps_per_panel;
  const int panel = static_cast<int>(blockIdx.x) * panels + panel_in_block;
  const int n_segments = p.matrix.n_segments;
  const bool is_inside = panel * kPanelRows < p.matrix.n_out;
  const u8* weights = p.matrix.bytes + panel * p.matrix.panel_bytes;
  const auto n_groups = [&](int s) { return s + 1 < n_segments ? kSegmentGroups : p.matrix.n_last_groups; };
  LoadedSegment<F> loaded;
  const bool is_early = is_inside && first < n_segments && p.expert_ids == nullptr;
  if (is_early) loaded.load(weights + static_cast<long long>(first) * kSegmentBytes, lane_id(), n_groups(first));
  wait_for_previous();
  const Work<M> work = find_work<M>(p);
  if (work.first >= work.n_total) return;
  weights += work.expert * p.matrix.matrix_bytes;
  for (int s = first; is_inside && s < n_segments; s += p.warps_per_panel) {
    if (s != first || !is_early) loaded.load(weights + static_cast<long long>(s) * kSegmentBytes, lane_id(), n_groups(s));
    float values[M];
    dot_segment<F, M>(loaded, p, work.x_rows, s, n_groups(s), values);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      partial[((panel_in_block * n_segments + s) * M + m) * kPanelRows + lane_id()] = values[m];
    }
  }
  __syncthreads();
  write_out<M>(p, work, partial);
}

ZINC_KERNEL linear_1(LinearParams p) { linear<1>(p); }
ZINC_KERNEL linear_4(LinearParams p) { linear<4>(p); }
ZINC_KERNEL linear_8(LinearParams p) { linear<8>(p); }

}  // namespace zinc::simt
