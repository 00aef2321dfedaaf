// out[t, o] = sum_k x[t, k] * weight[o, k] for few tokens (small batches); of float weights only those of experts, one
// token-expert pair per block. A program of this file begins with one format/<f>.h.
// One lane per output row, one warp per K segment; segments are added in order by one thread per output. A block's
// first weights load before it waits for its activations; it norms and quantizes them unless an earlier launch did.
// Reads each weight once per M tokens.
#include "backend/simt/device_common.h"

namespace zinc::simt {

using F = WeightFormat;
constexpr int kSegmentBytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);

// The M activation rows of a block, and its expert.
template <int M>
struct BlockRows {
  int first, n_total, expert;

  ZINC_DEVICE explicit BlockRows(const LinearParams& p) : first(static_cast<int>(blockIdx.y) * M), expert(0) {
    n_total = *p.n_rows * (p.expert_ids ? p.n_experts_used : p.vectors_per_row);
    if (p.expert_ids) expert = p.expert_ids[min(first, max(0, n_total - 1))];  // M is 1
  }
  // Rows past the last repeat it.
  ZINC_DEVICE int x_row(const LinearParams& p, int m) const {
    if (M == 1) return p.expert_ids && !p.x_per_expert ? first / p.n_experts_used : first;
    return max(0, min(first + m, n_total - 1));
  }
};

// The panels of a block: neighbors of one matrix, or of a GLU's gate and up.
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

// The sum of an output's segments, with scale and bias.
ZINC_DEVICE float finish_output(const LinearParams& p, int part, int expert, int o, const float* partial, int stride) {
  float sum = 0;
  for (int s = 0; s < p.parts[0].n_segments; ++s) sum += partial[s * stride];
  if (p.expert_scales[part]) sum *= p.expert_scales[part][expert];
  if (p.biases[part]) sum += p.biases[part][static_cast<long long>(expert) * p.parts[part].n_out + o];
  return sum;
}

template <int M>
ZINC_DEVICE void write_out(const LinearParams& p, const BlockRows<M>& rows, const Panels& panels,
                           const float* partial) {
  const int per_block = kWarps / p.warps_per_panel, per_panel = p.parts[0].n_segments * M * kPanelRows;
  const int n_results = p.act == kNoAct ? per_block : per_block / 2;
  for (int i = static_cast<int>(threadIdx.x); i < n_results * M * kPanelRows; i += kThreads) {
    const int row = i % kPanelRows, m = i / kPanelRows % M, result = i / (kPanelRows * M);
    const int local = p.act == kNoAct ? result : 2 * result, part = panels.part_of(p, local);
    const int o = panels.panel_of(p, local) * kPanelRows + row, n_out = p.parts[part].n_out;
    if (o >= n_out || rows.first + m >= rows.n_total) continue;
    const float* from = partial + local * per_panel + m * kPanelRows + row;
    float value = finish_output(p, part, rows.expert, o, from, M * kPanelRows);
    if (p.act != kNoAct) {
      value = gated(p.act, value, finish_output(p, 1, rows.expert, o, from + per_panel, M * kPanelRows));
    }
    const long long out_offset = static_cast<long long>(rows.first + m) * n_out + o;
    p.outs[part][out_offset] = p.residual ? p.residual[out_offset] + value : value;
  }
}

template <int M>
ZINC_DEVICE void linear(const LinearParams& p) {
  extern __shared__ float4 shared[];
  launch_dependents();
  const int per_block = kWarps / p.warps_per_panel, local = warp_id() / p.warps_per_panel;
  const int first = warp_id() % p.warps_per_panel, n_segments = p.parts[0].n_segments;
  const Panels panels(p, per_block);
  const Matrix& matrix = p.parts[panels.part_of(p, local)];
  const int panel = panels.panel_of(p, local);
  const bool is_in_bounds = panel * kPanelRows < matrix.n_out;
  const u8* weights = matrix.bytes + panel * matrix.panel_bytes;
  const auto n_groups = [&](int s) { return s + 1 < n_segments ? kSegmentGroups : p.parts[0].n_last_groups; };
  LoadedSegment<F> loaded;
  const auto load = [&](int s) {
    if (is_in_bounds && s < n_segments) {
      loaded.load(weights + static_cast<long long>(s) * kSegmentBytes, lane_id(), n_groups(s));
    }
  };
  if (p.expert_ids == nullptr) load(first);
  if (p.is_normed && p.norm_weight) {
    for (int s = first; s < n_segments; s += p.warps_per_panel) {
      if (s * kSegmentElems + lane_id() * 8 < p.parts[0].n_in) {
        prefetch_l2(p.norm_weight + s * kSegmentElems + lane_id() * 8);
      }
    }
  }
  wait_dependency();
  const BlockRows<M> rows(p);
  // With gridDim.y == 1 there is nearly always work, so the block does not wait for the row count.
  if (gridDim.y > 1 && rows.first >= rows.n_total) return;
  if (p.expert_ids) {
    weights += rows.expert * matrix.matrix_bytes;
    load(first);
    // The experts are known late: prefetch the warp's later segments to L2.
    constexpr int kLine = 128;
    for (int s = first + p.warps_per_panel; is_in_bounds && s + 1 < n_segments; s += p.warps_per_panel) {
      const u8* segment = weights + static_cast<long long>(s) * kSegmentBytes;
      for (int offset = lane_id() * kLine; offset < kSegmentBytes; offset += 32 * kLine) prefetch_l2(segment + offset);
    }
  }
  Inputs<F, M> inputs;
  float* partial = reinterpret_cast<float*>(shared) + Inputs<F, M>::kSharedFloats;  // [panel][segment][M][row]
  inputs.prepare(p, rows, reinterpret_cast<float*>(shared));
  for (int s = first; is_in_bounds && s < n_segments; s += p.warps_per_panel) {
    float values[M];
    inputs.dot(p, loaded, rows, s, n_groups(s), values);
    load(s + p.warps_per_panel);
#pragma unroll
    for (int m = 0; m < M; ++m) partial[((local * n_segments + s) * M + m) * kPanelRows + lane_id()] = values[m];
  }
  __syncthreads();
  write_out<M>(p, rows, panels, partial);
}

// Minimum blocks per SM of __launch_bounds__; 0: the compiler's choice. One where many bytes are in flight, or each
// group has a float scale and a float minimum.
constexpr bool kIsFloat = F::kQ8Block == 0;
constexpr bool kIsLarge = !kIsFloat && (F::kGroupBytes >= 32 || (F::kHasMin && F::kQ8Block == kGroupElems));
constexpr int kBlocks4 = kIsLarge ? 1 : F::kGroupBytes == 16 ? 2 : 0, kBlocks8 = kIsLarge ? 1 : 0;
ZINC_KERNEL linear_1(__grid_constant__ const LinearParams p) { linear<1>(p); }
extern "C" __global__ void __launch_bounds__(256, kBlocks4) linear_4(__grid_constant__ const LinearParams p) {
  if constexpr (!kIsFloat) linear<4>(p);
}
extern "C" __global__ void __launch_bounds__(256, kBlocks8) linear_8(__grid_constant__ const LinearParams p) {
  if constexpr (!kIsFloat) linear<8>(p);
}

}  // namespace zinc::simt
