// out[m, o] = sum_k x[m, k] * weight[o, k]: matrices times few rows of activations. A program of this file begins with
// one format/<f>.h.
// One lane per output row, one warp per segment of 256 inputs; the segments' values are added in order by one thread
// per output. A block's first weights are on their way before it waits for its activations, which it norms and rounds
// itself where nobody did. Moves each weight once per M rows of activations.
#include "backend/simt/dialect.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);

// Which rows a block works on: M rows of activations, times one matrix of each stack.
template <int M>
struct Work {
  int first, n_total, expert;

  ZINC_DEVICE explicit Work(const LinearParams& p) : first(static_cast<int>(blockIdx.y) * M), expert(0) {
    n_total = *p.n_rows * (p.expert_ids ? p.n_used : p.per_row);
    if (p.expert_ids) expert = p.expert_ids[min(first, max(0, n_total - 1))];  // M is 1
  }
  // Past the last they repeat it.
  ZINC_DEVICE int x_row(const LinearParams& p, int m) const {
    if (M == 1) return p.expert_ids && !p.x_per_used ? first / p.n_used : first;
    return max(0, min(first + m, n_total - 1));
  }
};

// Which panels a block has: neighbours of one matrix, or of two whose results are gated.
struct Panels {
  int part, first;
  ZINC_DEVICE Panels(const LinearParams& p, int per_block) : part(0), first(static_cast<int>(blockIdx.x)) {
    if (p.act == kNoAct) {
      for (; part + 1 < p.n_parts; ++part) {
        const int n_blocks = (p.parts[part].n_out + kPanelRows * per_block - 1) / (kPanelRows * per_block);
        if (first < n_blocks) break;
        first -= n_blocks;
      }
      first *= per_block;
    } else {
      first *= per_block / 2;
    }
  }
  ZINC_DEVICE int part_of(const LinearParams& p, int i) const { return p.act == kNoAct ? part : i % 2; }
  ZINC_DEVICE int panel_of(const LinearParams& p, int i) const { return first + (p.act == kNoAct ? i : i / 2); }
};

// The sum of an output's segments, scaled and biased.
ZINC_DEVICE float finished(const LinearParams& p, int part, int expert, int o, const float* partial, int stride) {
  float sum = 0;
  for (int s = 0; s < p.parts[0].n_segments; ++s) sum += partial[s * stride];
  if (p.expert_scales[part]) sum *= p.expert_scales[part][expert];
  if (p.biases[part]) sum += p.biases[part][static_cast<long long>(expert) * p.parts[part].n_out + o];
  return sum;
}

template <int M>
ZINC_DEVICE void write_out(const LinearParams& p, const Work<M>& work, const Panels& panels, const float* partial) {
  const int per_block = kWarps / p.warps_per_panel, per_panel = p.parts[0].n_segments * M * kPanelRows;
  const int n_results = p.act == kNoAct ? per_block : per_block / 2;
  for (int i = static_cast<int>(threadIdx.x); i < n_results * M * kPanelRows; i += kThreads) {
    const int row = i % kPanelRows, m = i / kPanelRows % M, result = i / (kPanelRows * M);
    const int local = p.act == kNoAct ? result : 2 * result, part = panels.part_of(p, local);
    const int o = panels.panel_of(p, local) * kPanelRows + row, n_out = p.parts[part].n_out;
    if (o >= n_out || work.first + m >= work.n_total) continue;
    const float* from = partial + local * per_panel + m * kPanelRows + row;
    float value = finished(p, part, work.expert, o, from, M * kPanelRows);
    if (p.act != kNoAct) {
      value = gated(p.act, value, finished(p, 1, work.expert, o, from + per_panel, M * kPanelRows));
    }
    const long long at = static_cast<long long>(work.first + m) * n_out + o;
    p.outs[part][at] = p.added ? p.added[at] + value : value;
  }
}

template <int M>
ZINC_DEVICE void linear(const LinearParams& p) {
  extern __shared__ float4 shared[];
  let_next_start();
  const int per_block = kWarps / p.warps_per_panel, local = warp_id() / p.warps_per_panel;
  const int first = warp_id() % p.warps_per_panel, n_segments = p.parts[0].n_segments;
  const Panels panels(p, per_block);
  const Matrix& matrix = p.parts[panels.part_of(p, local)];
  const int panel = panels.panel_of(p, local);
  const bool is_inside = panel * kPanelRows < matrix.n_out;
  const u8* weights = matrix.bytes + panel * matrix.panel_bytes;
  const auto n_groups = [&](int s) { return s + 1 < n_segments ? kSegmentGroups : p.parts[0].n_last_groups; };
  LoadedSegment<F> loaded;
  const auto load = [&](int s) {
    if (is_inside && s < n_segments) {
      loaded.load(weights + static_cast<long long>(s) * kSegmentBytes, lane_id(), n_groups(s));
    }
  };
  if (p.expert_ids == nullptr) load(first);
  if (p.is_normed && p.norm_weight) {
    for (int s = first; s < n_segments; s += p.warps_per_panel) {
      if (s * kSegmentElems + lane_id() * 8 < p.parts[0].n_in) {
        fetch_ahead(p.norm_weight + s * kSegmentElems + lane_id() * 8);
      }
    }
  }
  wait_for_previous();
  const Work<M> work(p);
  // With one row of blocks there is nearly always work: it begins before the count has arrived.
  if (gridDim.y > 1 && work.first >= work.n_total) return;
  if (p.expert_ids) {
    weights += work.expert * matrix.matrix_bytes;
    load(first);
    // The experts are known late: the warp's later segments come as near as the second-level cache meanwhile.
    constexpr int kLine = 128;
    for (int s = first + p.warps_per_panel; is_inside && s + 1 < n_segments; s += p.warps_per_panel) {
      const u8* segment = weights + static_cast<long long>(s) * kSegmentBytes;
      for (int at = lane_id() * kLine; at < kSegmentBytes; at += 32 * kLine) fetch_ahead(segment + at);
    }
  }
  Inputs<F, M> inputs;
  float* partial = reinterpret_cast<float*>(shared) + Inputs<F, M>::kSharedFloats;  // [panel][segment][M][row]
  inputs.prepare(p, work, reinterpret_cast<float*>(shared));
  for (int s = first; is_inside && s < n_segments; s += p.warps_per_panel) {
    float values[M];
    inputs.dot(p, loaded, work, s, n_groups(s), values);
    load(s + p.warps_per_panel);
#pragma unroll
    for (int m = 0; m < M; ++m) partial[((local * n_segments + s) * M + m) * kPanelRows + lane_id()] = values[m];
  }
  __syncthreads();
  write_out<M>(p, work, panels, partial);
}

// Blocks of a multiprocessor that the registers must do for; 0: as many as the compiler thinks best. One does where
// many bytes are on their way, or each group has a float scale and a float minimum.
constexpr bool kIsFloat = F::kRoundedBlock == 0;
constexpr bool kIsLarge = !kIsFloat && (F::kGroupBytes >= 32 || (F::kHasMin && F::kRoundedBlock == kGroupElems));
constexpr int kBlocks4 = kIsLarge ? 1 : F::kGroupBytes == 16 ? 2 : 0, kBlocks8 = kIsLarge ? 1 : 0;
ZINC_KERNEL linear_1(__grid_constant__ const LinearParams p) { linear<1>(p); }
extern "C" __global__ void __launch_bounds__(256, kBlocks4) linear_4(__grid_constant__ const LinearParams p) {
  linear<4>(p);
}
extern "C" __global__ void __launch_bounds__(256, kBlocks8) linear_8(__grid_constant__ const LinearParams p) {
  linear<8>(p);
}

}  // namespace zinc::simt
