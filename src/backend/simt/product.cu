// out[o] = sum_k x[k] * weight[o, k]: matrices times one row of activations, as fast as weights arrive. A program of
// this file begins with the formats of its matrices, as Formats.
// A block has neighbouring panels of one matrix, or of those an output is made of. Its weights begin to stream before
// it waits for its activations, which it norms and rounds once, for itself. Segments' values are linear.cu's to the
// bit, and are added in order by one lane per output.
#include "backend/simt/floating.h"
#include "backend/simt/ring.h"
#include "backend/simt/routing.h"
#include "backend/simt/row_input.h"

namespace zinc::simt {

constexpr int kGateBytes = kWarps * kMaxStages * static_cast<int>(sizeof(Gate));
constexpr int kInputBegin = kGateBytes + 64;  // behind the room of a sum over the block

// The experts of the row, in shared memory.
struct Used {
  int ids[kMaxUsed];
  float weights[kMaxUsed];
};

// A segment of floats, its products one after the other as in floating.h.
template <class F>
ZINC_DEVICE float dot_floats(const u8* segment, int row, const float* x, int n_groups) {
  float sum = 0;
#pragma unroll 2
  for (int g = 0; g < n_groups; ++g) {
    uint4 pieces[kGroupElems / F::kPieceElems];
#pragma unroll
    for (int j = 0; j < kGroupElems / F::kPieceElems; ++j) pieces[j] = float_piece<F>(segment, row, g, j);
#pragma unroll
    for (int e = 0; e < kGroupElems; e += 4) {
      const float4 v = *reinterpret_cast<const float4*>(x + g * kGroupElems + e);
      const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sum = fmaf(F::element(pieces[(e + k) / F::kPieceElems], (e + k) % F::kPieceElems), values[k], sum);
      }
    }
  }
  return sum;
}

// ---- results ----

ZINC_DEVICE float sum_of(const float* partial, int n) {
  float sum = 0;
#pragma unroll 4
  for (int s = 0; s < n; ++s) sum += partial[s * kPanelRows];
  return sum;
}

// One lane's output, from the segments of its terms.
struct Output {
  int o, row, expert;
  float bias = 0, last_bias = 0, added = 0;  // loaded before the sums are there

  ZINC_DEVICE void load(const ProductParams& p, const ProductPart& part) {
    const int n_out = part.matrix.n_out;
    if (o >= n_out) return;
    if (part.added) added = part.added[static_cast<long long>(row) * n_out + o];
    if (p.n_mixed > 0) return;
    const long long at = static_cast<long long>(expert) * n_out + o;
    if (part.bias) bias = part.bias[at];
    if (part.last_bias) last_bias = part.last_bias[at];
  }
  ZINC_DEVICE float plain(const ProductPart& part, const float* partial) const {
    const int n_segments = part.matrix.n_segments;
    float value = sum_of(partial, n_segments);
    if (part.expert_scale) value *= part.expert_scale[expert];
    if (part.bias) value += bias;
    if (part.act == kNoAct) return value;
    float last = sum_of(partial + n_segments * kPanelRows, n_segments);
    if (part.last_scale) last *= part.last_scale[expert];
    if (part.last_bias) last += last_bias;
    return gated(part.act, value, last);
  }
  // As moe_combine adds experts up, and then the shared one.
  ZINC_DEVICE float mixed(const ProductParams& p, const ProductPart& part, const Used& used,
                          const float* partial) const {
    const int n_segments = part.matrix.n_segments;
    float sum = 0;
    for (int u = 0; u < p.n_mixed; ++u) {
      float value = sum_of(partial + u * n_segments * kPanelRows, n_segments);
      if (part.expert_scale) value *= part.expert_scale[used.ids[u]];
      if (part.bias) value += part.bias[static_cast<long long>(used.ids[u]) * part.matrix.n_out + o];
      sum = fmaf(value, used.weights[u], sum);
    }
    if (!p.shared_gate) return sum;
    const float shared = sum_of(partial + p.n_mixed * n_segments * kPanelRows, n_segments);
    float gate = 0;
    for (int s = 0; s < p.n_gates; ++s) gate += p.shared_gate[s];
    return sum + gated(kSigmoid, gate, shared);
  }
  ZINC_DEVICE void write(const ProductParams& p, const ProductPart& part, const Used& used,
                         const float* partial) const {
    if (o >= part.matrix.n_out) return;
    const float value = p.n_mixed > 0 ? mixed(p, part, used, partial) : plain(part, partial);
    part.out[static_cast<long long>(row) * part.matrix.n_out + o] = part.added ? added + value : value;
  }
};

// ---- experts ----

// Every block for itself; the first leaves the result for later launches.
ZINC_DEVICE void find_experts(const RouteSource& p, Used& used) {
  __shared__ float logits[kMaxExperts];
  for (int e = static_cast<int>(threadIdx.x); e < p.n_experts; e += kThreads) {
    float sum = 0;
    for (int s = 0; s < p.n_segments; ++s) sum += p.partial[s * p.n_experts + e];
    logits[e] = p.bias ? sum + p.bias[e] : sum;
  }
  __syncthreads();
  if (warp_id() == 0) route(logits, p.n_experts, p.n_used, p.mode, p.scale, used.ids, used.weights);
  __syncthreads();
  if (blockIdx.x == 0 && blockIdx.y == 0 && static_cast<int>(threadIdx.x) < p.n_used) {
    p.ids[threadIdx.x] = used.ids[threadIdx.x];
    p.weights[threadIdx.x] = used.weights[threadIdx.x];
  }
}

ZINC_DEVICE void load_experts(const ProductParams& p, Used& used) {
  const int n = p.n_mixed > 0 ? p.n_mixed : static_cast<int>(gridDim.y), i = static_cast<int>(threadIdx.x);
  if (i < n) {
    used.ids[i] = p.expert_ids[i];
    used.weights[i] = p.mix_weights ? p.mix_weights[i] : 0.0f;
  }
  __syncthreads();
}

// ---- blocks ----

// A warp per segment of floats.
template <class F>
ZINC_DEVICE void spread_part(const ProductParams& p, const ProductPart& part, u8* shared) {
  constexpr int kSegmentBytes = kPanelRows * kSegmentGroups * F::kGroupBytes;
  const Matrix& matrix = part.matrix;
  const int block = static_cast<int>(blockIdx.x) - part.first_block, n_segments = matrix.n_segments;
  const int n_units = (matrix.n_out + kPanelRows - 1) / kPanelRows * n_segments;
  const int unit = static_cast<int>(static_cast<long long>(n_units) * block / part.n_blocks) + warp_id();
  const bool has_unit = unit < static_cast<int>(static_cast<long long>(n_units) * (block + 1) / part.n_blocks);
  const int panel = unit / n_segments, s = unit % n_segments;
  const int n_groups = s + 1 < n_segments ? kSegmentGroups : matrix.n_last_groups;
  u8* slot = shared + p.ring_begin + warp_id() * kSegmentBytes;
  Gate* gate = reinterpret_cast<Gate*>(shared) + warp_id() * kMaxStages;
  if (has_unit && lane_id() == 0) {
    open_gate(gate);
    end_opening();
    copy_bulk(slot, matrix.bytes + panel * matrix.panel_bytes + static_cast<long long>(s) * kSegmentBytes,
              kPanelRows * n_groups * F::kGroupBytes, gate);
  }
  __syncwarp();
  typename RowInput<F>::Norms norm;
  norm.load(p.source, matrix.n_in, n_segments);
  wait_for_previous();
  RowInput<F>::prepare(p.source, matrix.n_in, n_segments, 0, 1, norm, shared + kInputBegin,
                       reinterpret_cast<float*>(shared + kGateBytes));
  if (!has_unit) return;
  wait_at(gate, 0);
  const int o = panel * kPanelRows + lane_id();
  const float* x = reinterpret_cast<const float*>(shared + kInputBegin) + s * kSegmentElems;
  if (o < matrix.n_out) part.out[s * matrix.n_out + o] = dot_floats<F>(slot, lane_id(), x, n_groups);
}

// The warps of a panel wait for each other. Barriers by name: a kernel that computes their numbers takes all there are.
ZINC_DEVICE void meet_panel(int local, int n_threads) {
  if (local == 0) meet<1>(n_threads);
  if (local == 1) meet<2>(n_threads);
  if (local == 2) meet<3>(n_threads);
  if (local == 3) meet<4>(n_threads);
}

template <class F>
ZINC_DEVICE void multiply_part(const ProductParams& p, const ProductPart& part, u8* shared) {
  constexpr bool kIsFloat = F::kRoundedBlock == 0;
  __shared__ Used used;
  const Matrix& matrix = part.matrix;
  const int n_segments = matrix.n_segments;
  const int k = part.warps_per_panel, per_block = kWarps / k, local = warp_id() / k, first = warp_id() % k;
  const int block = static_cast<int>(blockIdx.x) - part.first_block;
  const int n_panels = (matrix.n_out + kPanelRows - 1) / kPanelRows;
  const int begin = static_cast<int>(static_cast<long long>(n_panels) * block / part.n_blocks);
  const int end = static_cast<int>(static_cast<long long>(n_panels) * (block + 1) / part.n_blocks);
  Units ahead;
  ahead.weights = matrix.bytes;
  ahead.last = part.last;
  ahead.experts = p.n_mixed > 0 ? used.ids : nullptr;
  ahead.panel_bytes = matrix.panel_bytes;
  ahead.matrix_bytes = matrix.matrix_bytes;
  ahead.segment_bytes = kPanelRows * (F::kHeaderBytes + kSegmentGroups * F::kGroupBytes);
  ahead.last_bytes = kPanelRows * (F::kHeaderBytes + matrix.n_last_groups * F::kGroupBytes);
  ahead.n_segments = n_segments;
  ahead.n_terms = (p.n_mixed > 0 ? p.n_mixed : 1) + (part.last ? 1 : 0);
  ahead.panel = begin + local;
  ahead.end = end;
  ahead.panel_step = per_block;
  ahead.unit = ahead.first = first;
  ahead.step = k;
  const int n_units = ahead.n_units();
  if (first >= n_units) ahead.panel = end;
  Ring ring{shared + p.ring_begin + warp_id() * p.n_stages * p.stage_bytes,
            reinterpret_cast<Gate*>(shared) + warp_id() * kMaxStages, p.stage_bytes, p.n_stages};
  const bool has_experts = p.expert_ids || p.route.partial;
  if (!kIsFloat) ring.open();
  if (!kIsFloat && !has_experts) ring.fill(ahead);
  typename RowInput<F>::Norms norm;
  norm.load(p.source, matrix.n_in, n_segments);
  wait_for_previous();
  const int y = static_cast<int>(blockIdx.y);
  int expert = 0;
  if (has_experts) {
    p.route.partial ? find_experts(p.route, used) : load_experts(p, used);
    if (p.n_mixed == 0) {
      expert = used.ids[y];
      ahead.weights += expert * matrix.matrix_bytes;
      if (part.last) ahead.last += expert * matrix.matrix_bytes;
    }
    if (!kIsFloat) ring.fill(ahead);
  }
  Units now = ahead;  // where nothing is copied ahead
  u8* x = shared + kInputBegin;
  const int n_rows = p.n_mixed > 0 ? p.n_mixed + (part.last ? 1 : 0) : 1;
  RowInput<F>::prepare(p.source, matrix.n_in, n_segments, p.x_per_used ? y : 0, n_rows, norm, x,
                       reinterpret_cast<float*>(shared + kGateBytes));
  float* partial = reinterpret_cast<float*>(shared + p.partial_begin) + local * n_units * kPanelRows;
  int round = 0;
  for (int panel = begin + local; panel - local < end; panel += per_block, ++round) {
    float* to = partial + round % 2 * p.half_floats;
    const bool finishes = round % k == first && panel < end;
    Output output;
    output.o = panel * kPanelRows + lane_id();
    output.row = y;
    output.expert = expert;
    if (finishes) output.load(p, part);
    int s = first;
    for (int u = first; u < n_units && panel < end; u += k, s += k) {
      while (s >= n_segments) s -= n_segments;
      const int n_groups = s + 1 < n_segments ? kSegmentGroups : matrix.n_last_groups;
      const int at = p.n_mixed > 0 ? u : s;
      float values[1] = {0};
      if constexpr (kIsFloat) {
        if (output.o < matrix.n_out) {
          values[0] = dot_floats<F>(now.at(now.term()), lane_id(),
                                    reinterpret_cast<const float*>(x) + at * kSegmentElems, n_groups);
        }
        now.advance();
      } else {
        LoadedSegment<F> loaded;
        loaded.load(ring.take(), lane_id(), n_groups);
        dot_rounded<F, 1>(loaded, reinterpret_cast<const SharedX*>(x) + at, n_groups, values);
        ring.give_back(ahead);
      }
      to[u * kPanelRows + lane_id()] = values[0];
    }
    meet_panel(local, 32 * k);
    if (finishes) output.write(p, part, used, to + lane_id());
  }
}

template <class First, class... Rest>
ZINC_DEVICE void choose(const ProductParams& p, const ProductPart& part, u8* shared, int format, List<First, Rest...>) {
  if (sizeof...(Rest) == 0 || format == 0) {
    if constexpr (First::kRoundedBlock == 0) {
      if (part.is_spread) return spread_part<First>(p, part, shared);
    }
    return multiply_part<First>(p, part, shared);
  }
  if constexpr (sizeof...(Rest) > 0) choose(p, part, shared, format - 1, List<Rest...>{});
}

// Grid: blocks of all parts; used experts, unless they are mixed.
ZINC_KERNEL_2 product(__grid_constant__ const ProductParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ float4 shared[];
  let_next_start();
  touch_params(p);
  int i = 0;
  while (i + 1 < p.n_parts && static_cast<int>(blockIdx.x) >= p.parts[i + 1].first_block) ++i;
  choose(p, p.parts[i], reinterpret_cast<u8*>(shared), p.parts[i].format, Formats{});
#else
  __trap();  // never launched on older parts: they have no bulk copies
#endif
}

}  // namespace zinc::simt
