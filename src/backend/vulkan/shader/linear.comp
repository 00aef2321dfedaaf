// out[m, o] = sum_k x[m, k] * weight[o, k]: GEMV and small GEMM, one module per format. One thread per output row, 32 rows per
// panel; M rows of activations together. Either the warps of a workgroup split the K segments of a panel (kSplitK, decode) or
// each warp computes one panel (prefill). A segment's sum is an exact integer followed by the fewest float operations;
// segments are added in order within a K split, splits in order. So the result depends neither on M nor on kSplitK nor on
// where x was quantized. Each weight is read once per M rows.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "panel.glsl"
#include FORMAT
#include "matmul.glsl"

layout(constant_id = kSpecLinearRows) const int M = 1;  // rows of activations together
layout(constant_id = kSpecLinearSplitK) const int kSplitK = 1;  // split-K: the warps of a panel share its segments
layout(constant_id = kSpecLinearKSplits) const int kKSplits = 8;  // Matrix::n_splits of all parts
#include "segments.glsl"
#include "prologue.glsl"

// Gate and up in parallel if warps are left over.
const int kHasSpareWarps = 2 * kKSplits <= kWarps ? 1 : 0, kParallelParts = 1 + kGatedAct * kSplitK * kHasSpareWarps;
const int kPanelWarps = kSplitK != 0 ? kKSplits * kParallelParts : 1, kPanels = kWarps / kPanelWarps;  // per workgroup
const int kUpOffset = kParallelParts == 2 ? kKSplits * M * 32 : M * kThreads;  // offset of up in `partial`, behind gate
shared float partial[kSplitK * (1 + kGatedAct) * M * kThreads + 1];

const bool kPrefetchesResidual = M == 1 && kSplitK != 0;

int results[M];

PrefetchedSegment prefetched;  // registers of the current segment

uint64_t segment_at(uint64_t weights, int s) { return weights + uint64_t(s) * uint64_t(kSegmentBytes); }

// With one row the next segment is prefetched into the registers that the current one frees. More rows need those registers
// and hide the latency anyway.
const bool kPrefetchesNext = M == 1;

// Multiplies the panel's K splits, from `split` on (just one with kSplitK). The segment at `after` is prefetched at the end
// (0: none). A second prefetch buffer would cost more occupancy than it gains. REQUIRES: the first segment is prefetched.
void multiply_panel(uint64_t weights, int n_segments, int split, bool is_warm_up, uint64_t after, out float totals[M]) {
  int begin = split * n_segments / kKSplits, end_split = kSplitK != 0 ? split + 1 : kKSplits;
  int last = is_warm_up ? begin : end_split * n_segments / kKSplits - 1;
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  for (; split < end_split; ++split) {
    float sums[M];
    [[unroll]] for (int m = 0; m < M; ++m) sums[m] = 0;
    int end = is_warm_up ? begin + 1 : (split + 1) * n_segments / kKSplits;
    [[dont_unroll]] for (int s = split * n_segments / kKSplits; s < end; ++s) {
      float values[M];
      uint64_t next = s < last ? segment_at(weights, s + 1) : after;
      multiply_segment(prefetched, s, kPrefetchesNext ? next : 0ul, values);
      if (!kPrefetchesNext && next != 0ul) prefetched = load_segment(next);
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float sum = sums[m] + values[m];
        sums[m] = sum;
      }
    }
    [[unroll]] for (int m = 0; m < M; ++m) {
      precise float total = totals[m] + sums[m];
      totals[m] = total;
    }
  }
}

// Finds the rows of the tile and their expert. Returns the number of rows, 0: nothing to do.
int find_rows(out int expert) {
  int first, n = select_tile(M, expert, first);
  [[unroll]] for (int m = 0; m < M && n > 0; ++m) {  // rows past the end repeat the last
    int row = first + min(m, n - 1);
    results[m] = kExpertMode == kSortedTiles ? Ints(p.sorted_pairs).data[row] : row;
    x_rows[m] = kExpertMode != kDense && p.x_per_expert == 0 ? results[m] / p.n_experts_used : results[m];
  }
  return n;
}

// The matmul of this workgroup.
void multiply(bool is_warm_up) {
  if (kExpertMode == kPairPerTile && !is_warm_up) wait_producers(p.sync);
  if (kRouteCapacity > 1) select_experts(p.route, 0);  // one row: the routing is part of this dispatch
  int warp_panel = warp_id() / kPanelWarps, split = kSplitK != 0 ? warp_id() % kKSplits : 0;
  int parallel_part = kParallelParts == 2 ? warp_id() / kKSplits % 2 : 0;
  int part, output_tile = select_part(kPanelRows * kPanels, part);
  int panel = output_tile * kPanels + warp_panel, n_out = p.parts[part].n_out, expert;
  int n_rows = find_rows(expert);
  if (n_rows == 0) return;
  if (is_warm_up) expert = 0;
  bool is_in_bounds = panel * kPanelRows < n_out;
  int safe_panel = is_in_bounds ? panel : 0, weight_part = kParallelParts == 2 ? parallel_part : part;
  int n_segments = p.parts[0].n_segments;
  uint64_t weights = panel_at(p.parts[weight_part], safe_panel, expert);
  // Prefetch the first weights before the activations are read.
  bool loads_weights = is_warm_up || kWarmUp == 0;
  int begin = split * n_segments / kKSplits;
  if (loads_weights || kExpertMode == kPairPerTile) prefetched = load_segment(segment_at(weights, begin));
  if (loads_weights && kStagesRow != 0) prefetch_prologue();
  if (kRouteCapacity > 1 && gl_WorkGroupID.x == 0 && gl_WorkGroupID.y == 0) write_route(p.route, 0, !is_warm_up);
  if (kExpertMode != kPairPerTile && !is_warm_up) wait_producers(p.sync);
  // One row: a thread has at most one output. Its residual is loaded together with the row, not after the sums.
  float residual_value = 0;
  int own_output = output_tile * kPanels * kPanelRows + thread_id();
  if (kPrefetchesResidual && thread_id() < kPanels * kPanelRows && own_output < n_out) {
    residual_value = residual(part, own_output, results[0]);
  }
  if (kStagesRow != 0) run_prologue();
  float totals[M], gates[M];
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  int n_passes = kGatedAct != 0 && kParallelParts == 1 && !is_warm_up ? 2 : 1;
  [[dont_unroll]] for (int pass = 0; pass < n_passes; ++pass) {
    if (pass == 1) weights = panel_at(p.parts[1], safe_panel, expert);
    // After the gate's segments come the up's; after a warm-up pass the first again if its registers were overwritten.
    uint64_t after = pass + 1 < n_passes ? segment_at(panel_at(p.parts[1], safe_panel, expert), begin)
                     : is_warm_up && Q8_BLOCK == 0 ? segment_at(weights, begin) : 0ul;
    [[unroll]] for (int m = 0; m < M; ++m) gates[m] = totals[m];
    if (is_in_bounds || kStagesSegment) multiply_panel(weights, n_segments, split, is_warm_up, after, totals);
    [[unroll]] for (int m = 0; m < M && kSplitK != 0; ++m) {
      partial[pass * kUpOffset + (warp_id() * M + m) * 32 + lane_id()] = totals[m];
    }
  }
  if (kSplitK == 0) {
    int o = panel * kPanelRows + lane_id();
    [[unroll]] for (int m = 0; m < M; ++m) {
      if (o >= n_out || m >= n_rows) continue;
      write_out(part, expert, o, results[m], kGatedAct != 0 ? gates[m] : totals[m], totals[m], residual(part, o, results[m]));
    }
    return;
  }
  barrier();
  for (int i = thread_id(); i < kPanels * M * kPanelRows; i += kThreads) {
    int row = i % kPanelRows, m = i / kPanelRows % M, local_panel = i / (kPanelRows * M);
    int o = (output_tile * kPanels + local_panel) * kPanelRows + row;
    if (o >= n_out || m >= n_rows) continue;
    float sum = 0, up_sum = 0;
    [[unroll]] for (int w = 0; w < kKSplits; ++w) {
      int offset = ((local_panel * kPanelWarps + w) * M + m) * 32 + row;
      precise float next = sum + partial[offset];
      sum = next;
      if (kGatedAct != 0) {
        precise float next_up = up_sum + partial[kUpOffset + offset];
        up_sum = next_up;
      }
    }
    if (!kPrefetchesResidual) residual_value = residual(part, o, results[m]);
    if (!is_warm_up) write_out(part, expert, o, results[m], sum, up_sum, residual_value);
  }
}

void main() {
  [[dont_unroll]] for (int pass = 1 - kWarmUp; pass < 2; ++pass) multiply(pass == 0);
  signal_done(p.sync);
}
